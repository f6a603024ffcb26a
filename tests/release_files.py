"""Writes one small file of each kind that users keep, as the installed release writes it.

    python -m tests.release_files tests/fixtures/release_1_5_0

was run with release 1.5.0 (and its `tests` folder). Later releases must still open what lies there,
which `tests/test_earlier_releases.py` holds. Paths in the files are relative to the folder, so that
it works wherever it is copied to.
"""

import copy
import json
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

STEP = 2  # after which runs are killed: within their first epoch of four
TEXTS = ["ka lo mi tu", "", "re sa no ve pi du ka", "mi " * 60, "Käse, naïve: ½"]
QUERY = "ka lo mi tu re sa"


def main(folder: Path) -> None:
    """Write everything into `folder`, which must not be there yet."""
    folder.mkdir(parents=True)
    os.chdir(folder)
    os.environ |= {"TRANSFORMER_MODEL": "transformer", "DECLUTR_CACHE": "cache"}
    os.environ |= {"OMP_NUM_THREADS": "1", "DECLUTR_WORKERS": "1"}
    write_inputs()
    write_runs()
    shutil.copytree("runs/declutr/whole", "model")
    for pattern in ("*_state_*", "metrics*", "*.log", "log"):
        remove(Path("model").glob(pattern))
    write_uses_of_the_model()
    tidy()


def write_inputs() -> None:
    """A transformer of two layers, 16 wide, and the texts that everything else is made of."""
    from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer

    rng = random.Random(0)
    words = ["".join(rng.choices(["ka", "lo", "mi", "tu", "re", "sa"], k=3)) for _ in range(60)]
    documents = [" ".join(rng.choices(words, k=90)) for _ in range(16)]
    make_checkpoint(
        "transformer",
        train_tokenizer(documents, 280, max_length=64),
        layers=2,
        hidden_size=16,
        heads=2,
        intermediate_size=16,
        max_length=64,
    )
    sentences = [" ".join(rng.choices(words, k=rng.randint(3, 9))) for _ in range(16)]
    rows = [f"{sentence}\t{number % 2}" for number, sentence in enumerate(sentences)]
    Path("documents.txt").write_text("\n".join(documents) + "\n")
    Path("sentences.txt").write_text("\n".join(sentences) + "\n")
    lines = [" ".join(rng.choices(words, k=rng.randint(3, 9))) for _ in range(200)]
    Path("lines.txt").write_text("\n".join(lines) + "\n")
    Path("sst.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    Path("texts.txt").write_text("\n".join([*TEXTS, *sentences]) + "\n")
    benchmark = Path("SentEval/downstream/STS/STSBenchmark")
    benchmark.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        pairs = [(*rng.sample(sentences, 2), rng.uniform(0, 5)) for _ in range(6)]
        lines = [f"g\tf\ty\t0\t{score:.3f}\t{a}\t{b}" for a, b, score in pairs]
        (benchmark / f"sts-{split}.csv").write_text("\n".join(lines) + "\n")


# ------------------------------------------------------------------------------------------- runs


def write_runs() -> None:
    """Runs that were killed, each with the last weights and metrics of one that was not."""
    from allennlp.commands.train import train_model
    from allennlp.common import Params

    import declutr.plugin  # noqa: F401
    from declutr.training.checkpointer import AtomicCheckpointer

    save = AtomicCheckpointer.save_checkpoint
    for name, config in configurations().items():
        whole, killed = Path("runs", name, "whole"), Path("runs", name, "killed")

        def saved(checkpointer: Any, trainer: Any, of: Path = whole, to: Path = killed) -> None:
            save(checkpointer, trainer)
            if trainer._total_batches_completed == STEP:
                shutil.copytree(of, to)

        AtomicCheckpointer.save_checkpoint = saved  # type: ignore[method-assign]
        try:
            train_model(Params(copy.deepcopy(config)), str(whole))
        finally:
            AtomicCheckpointer.save_checkpoint = save  # type: ignore[method-assign]


def configurations() -> dict[str, dict[str, Any]]:
    """Recipes of the release, in small."""
    from allennlp.common import Params

    recipes = Path(import_module("declutr").__file__ or "").parent.parent / "training_config"

    def small(name: str) -> dict[str, Any]:
        file = next(recipes.rglob(f"{name}.jsonnet"))
        config = Params.from_file(str(file)).as_dict(quiet=True)
        for loader in ("data_loader", "validation_data_loader"):
            config[loader] |= {"batch_size": 4}
            if config[loader].get("type") == "declutr":
                config[loader]["num_workers"] = 0
        config["trainer"] |= {"num_epochs": 2, "cuda_device": -1}
        config["trainer"]["optimizer"]["lr"] = 1e-3
        config["trainer"]["checkpointer"]["save_every_num_batches"] = STEP
        return config

    declutr = small("declutr")
    declutr["dataset_reader"] |= {"max_span_len": 16, "min_span_len": 4}
    mixed = copy.deepcopy(declutr)
    mixed["model"]["text_field_embedder"]["token_embedders"]["tokens"]["last_layer_only"] = False
    averaged = copy.deepcopy(declutr)
    averaged["trainer"]["moving_average"] = {"type": "exponential", "decay": 0.9}
    selected = copy.deepcopy(declutr)
    selected["trainer"]["callbacks"].append(
        {
            "type": "evaluate_embeddings",
            "data": "SentEval",
            "tasks": ["STS-B"],
            "every_num_steps": 1,
            "select_by": "STS-B/cosine Spearman dev",
        }
    )
    scd = small("scd")
    scd["model"]["head"]["hidden_dims"] = [8, 8]
    reclaim = small("random_bank")
    reclaim["model"]["objective"] |= {"instances": 16, "num_negatives": 4}
    reclaim["model"]["model"]["seq2vec_encoder"]["embedding_dim"] = 16
    files = {"scd": "sentences.txt", "reclaim": "sst.tsv"}
    runs = {"declutr": declutr, "mixed_layers": mixed, "moving_average": averaged}
    runs |= {"selected": selected, "scd": scd, "reclaim": reclaim}
    for name, config in runs.items():
        file = files.get(name, "documents.txt")
        config["train_data_path"] = file
        config["validation_data_path"] = None if name == "scd" else file
    return runs


# ------------------------------------------------------------------------------ what uses a model


def write_uses_of_the_model() -> None:
    """Whitening, embeddings, indexes, an export and an evaluation, by their commands."""
    import numpy as np

    from declutr import Encoder
    from declutr.search import SearchIndex, build_index

    command("whiten", "model", "sentences.txt", "--dimension", "8", "--quiet")
    embed = ["embed", "model", "texts.txt", "--shard-rows", "4", "--dtype", "float32", "--quiet"]
    command(*embed, "-o", "embeddings/npy")
    command(*embed, "-o", "embeddings/parquet", "--format", "parquet")
    command(*embed, "-o", "embeddings/jsonl", "--format", "jsonl")
    interrupted(lambda: command(*embed, "-o", "embeddings/partial"), Encoder, calls=2)
    for backend in ("numpy", "faiss"):
        folder = f"index/{backend}"
        command("index", "model", "texts.txt", "-o", folder, "--backend", backend, "--quiet")
    lines = Path("lines.txt").read_text().splitlines()
    encoder = Encoder("model", dtype="float32")
    build_index(encoder, lines, "index/lists", backend="faiss", exact_rows=0)
    command("export", "model", "export", "--no-onnx")
    tasks = ["--tasks", "STS-B", "--no-plots"]
    command("evaluate-embeddings", "SentEval", "model", "-o", "evaluation", *tasks)
    np.save("embeddings.npy", encoder(TEXTS))
    hits = {
        index.name: [hit.row for hit in SearchIndex(index, encoder).search(QUERY, 5)]
        for index in Path("index").iterdir()
    }
    Path("hits.json").write_text(json.dumps(hits) + "\n")


def command(*words: str) -> None:
    """`declutr …`, in this process; raises where it would fail."""
    from declutr.__main__ import main as declutr

    arguments, sys.argv = sys.argv, ["declutr", *words]
    try:
        declutr()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = arguments


def interrupted(work: Callable[[], None], encoder: type, calls: int) -> None:
    """Do `work` until the encoder was called so many times."""
    embed, made = encoder.__call__, 0  # type: ignore[operator]

    def until(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        made += 1
        if made > calls:
            raise KeyboardInterrupt
        return embed(*args, **kwargs)

    encoder.__call__ = until  # type: ignore[operator]
    try:
        work()
    except (KeyboardInterrupt, SystemExit):
        pass
    finally:
        encoder.__call__ = embed  # type: ignore[operator]
    if made <= calls:
        raise RuntimeError(f"There was nothing to interrupt after {calls} calls.")


def tidy() -> None:
    """Leave of each run what is compared with: the last weights and the metrics."""
    kept = {"model_state_e2_b0.th", "metrics.json"}
    for run in Path("runs").iterdir():
        # The others' best weights are their last ones.
        of_run = kept | {"best.th"} if run.name in ("moving_average", "selected") else kept
        remove(path for path in (run / "whole").iterdir() if path.name not in of_run)
    for pattern in ("*.lock", ".lock", "log", "*.log"):
        remove(Path().rglob(pattern))


def remove(paths: Iterable[Path]) -> None:
    """Remove files and folders, if they are still there."""
    for path in list(paths):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
