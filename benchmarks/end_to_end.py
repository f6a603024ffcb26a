"""`allennlp train` against the bare step: what reading, the trainer and callbacks cost."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from typing import Any

from benchmarks.memory import ROOT
from benchmarks.results import record
from benchmarks.texts import (
    checkpoint,
    corpus_file,
    documents_of_tokens,
    workspace,
    write_documents,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--shapes", nargs="+", default=["small", "distilroberta"], help="of the transformer"
    )
    parser.add_argument("--documents", type=int, default=4, help="a step (default 4)")
    parser.add_argument("--steps", type=int, default=6, help="of each turn (default 6)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default 3)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--precision", default="bfloat16", help="(default bfloat16)")
    parser.add_argument("--data", help="documents, one a line (default: local docstrings)")


def run(args: argparse.Namespace) -> None:
    rows = []
    for shape in ["small"] if args.quick else args.shapes:
        trained, bare = measure(shape, args)
        ratios = sorted(b / t for t, b in zip(trained, bare, strict=True))
        rows.append(
            {
                "shape": shape,
                "allennlp train, s a step": sorted(trained)[len(trained) // 2],
                "bare step, s": sorted(bare)[len(bare) // 2],
                "rate of the bare step": f"{ratios[len(ratios) // 2]:.0%}",
                "lowest": f"{ratios[0]:.0%}",
                "highest": f"{ratios[-1]:.0%}",
            }
        )
    record(
        "end_to_end",
        "Training from end to end",
        rows,
        note=(
            "The recipe `declutr` run by AllenNLP's trainer with loader (one worker), schedule, "
            "callbacks and logging, against forward, backward, clipping and optimizer alone on "
            "the same batches, already in memory. Turns of both alternate in one process; the "
            "loader's worker reads on during bare turns, up to two batches. Start-up and the "
            "final checkpoint are left out."
        ),
        settings={k: v for k, v in vars(args).items() if k != "data"},
    )


def measure(shape: str, args: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Seconds a step, one number a turn: by the trainer, and bare on the same batches."""
    from allennlp.commands.train import TrainModel
    from allennlp.common import Params
    from allennlp.common.util import prepare_environment
    from allennlp.training import TrainerCallback

    import declutr.plugin  # noqa: F401

    output = workspace() / "end_to_end"
    shutil.rmtree(output, ignore_errors=True)
    turns: dict[str, list[float]] = {"trained": [], "bare": []}
    batches: list[Any] = []

    class Alternate(TrainerCallback):
        """After every `steps` steps of the trainer, as many bare ones on the same batches."""

        looks_at_metrics = False

        def on_start(self, trainer: Any, is_primary: bool = True, **kwargs: Any) -> None:
            self.began = time.perf_counter()

        def on_batch(self, trainer: Any, batch_inputs: Any, *_: Any, **kwargs: Any) -> None:
            batches.extend(batch_inputs)
            if len(batches) < args.steps:
                return
            _wait(args.device)
            turns["trained"].append((time.perf_counter() - self.began) / args.steps)
            began = time.perf_counter()
            for batch in batches:
                trainer.optimizer.zero_grad()
                trainer.model(**batch)["loss"].backward()
                trainer.rescale_gradients()
                trainer.optimizer.step()
            _wait(args.device)
            turns["bare"].append((time.perf_counter() - began) / args.steps)
            batches.clear()
            self.began = time.perf_counter()

    params = Params(_config(shape, args))
    prepare_environment(params)
    model = TrainModel.from_params(
        params, serialization_dir=str(output), local_rank=0, dry_run=False
    )
    trainer: Any = model.trainer
    trainer._callbacks.append(Alternate(str(output)))
    model.run()
    # The first turn warms up.
    return turns["trained"][1:], turns["bare"][1:]


def _config(shape: str, args: argparse.Namespace) -> dict[str, Any]:
    from allennlp.common import Params

    text = corpus_file(args.data)
    folder = checkpoint(text, shape)
    needed = args.documents * args.steps * (args.rounds + 1)
    documents = write_documents(
        documents_of_tokens(text, folder, needed), workspace() / f"{shape}-{needed}.txt"
    )
    changes = {
        "train_data_path": str(documents),
        "dataset_reader.cache_dir": str(workspace() / "cache"),
        "data_loader.batch_size": args.documents,
        "model.precision": args.precision,
        "trainer.cuda_device": 0 if args.device == "cuda" else -1,
    }
    os.environ["TRANSFORMER_MODEL"] = str(folder)
    recipe = ROOT / "training_config" / "declutr.jsonnet"
    return Params.from_file(str(recipe), json.dumps(changes)).as_dict()


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
