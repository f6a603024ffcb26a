"""RECLAIM on real tasks: accuracy with and without it, at several shares of the labels.

python -m benchmarks reclaim_tasks --checkpoint FOLDER --evaluation FOLDER
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from scipy.stats import t as student_t
from tqdm import tqdm

from benchmarks.results import Plot, record

FRACTIONS = 0.01, 0.05, 0.1, 1.0
NEGATIVES = 1, 10, 100, 300

Pair = tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    needed = parser.add_argument_group("needed (without them nothing is run)")
    needed.add_argument("--checkpoint", type=Path, help="a transformer's folder")
    needed.add_argument("--evaluation", type=Path, help="SentEval's data")
    parser.add_argument("--tasks", nargs="+", default=["SST2", "TREC", "SICK-E", "MR"])
    parser.add_argument("--seeds", type=int, default=5, help="(default 5)")
    parser.add_argument("--rows", type=int, default=5000, help="of training data (default 5000)")
    parser.add_argument("--test-rows", type=int, default=1000, help="(default 1000)")
    parser.add_argument("--steps", type=int, default=300, help="of 32 texts (default 300)")
    parser.add_argument("--learning-rate", type=float, default=3e-4, help="(default 3e-4)")
    parser.add_argument("--weight", type=float, default=0.1, help="lambda (default 0.1)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")
    parser.add_argument("--output", type=Path, help="keeps what is done; given again, goes on")
    parser.add_argument(
        "--share",
        metavar="I/N",
        help="run each Nth only, from the Ith on (1/2 and 2/2 beside each other, with the same "
        "--output; once more without it, to record)",
    )


def run(args: argparse.Namespace) -> None:
    missing = [name for name in ("checkpoint", "evaluation") if getattr(args, name) is None]
    if missing:
        print(f"reclaim_tasks left out: it needs --{', --'.join(missing)}.")
        return
    torch.set_num_threads(args.threads)
    if args.quick:
        args.tasks, args.seeds, args.steps = args.tasks[:1], 2, 20
    with tempfile.TemporaryDirectory() as scratch:
        output = args.output or Path(scratch)
        output.mkdir(parents=True, exist_ok=True)
        files = {task: _written(task, output, args) for task in args.tasks}
        settings = _settings(args)
        done = output / "accuracies.jsonl"
        known = _known(done)
        first, every = map(int, args.share.split("/")) if args.share else (1, 1)
        for setting in tqdm(settings[first - 1 :: every], unit="run"):
            key = _key(setting, args)
            if key not in known:
                known[key] = _outcome(files[setting["task"]], setting, args)
                with done.open("a") as file:
                    file.write(json.dumps([key, known[key]]) + "\n")
        if args.share is None:
            _record(known, settings, args)


def _key(setting: dict[str, Any], args: argparse.Namespace) -> str:
    """Of a run in the file of those that are done: all that its outcome depends on."""
    names = "rows", "test_rows", "steps", "learning_rate"
    shared = {name: getattr(args, name) for name in names} | {"encoder": args.checkpoint.name}
    return json.dumps({**setting, **shared}, sort_keys=True)


def _settings(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every run: a task, a share of labels, a seed, K (0 for the task alone)."""
    runs = [
        {"task": task, "fraction": fraction, "seed": seed, "negatives": k, "weight": weight}
        for task in args.tasks
        for fraction in FRACTIONS
        for seed in range(args.seeds)
        for k, weight in ((0, 0.0), (100 if fraction == 1 else 10, args.weight))
    ]
    ablation = [
        {"task": args.tasks[0], "fraction": 0.1, "seed": seed, "negatives": k, "weight": weight}
        for seed in range(args.seeds)
        for k, weight in [(k, args.weight) for k in NEGATIVES] + [(10, 0.01), (10, 1.0)]
    ]
    return runs + [setting for setting in ablation if setting not in runs]


def _known(file: Path) -> dict[str, dict[str, float]]:
    return dict(map(json.loads, file.read_text().splitlines())) if file.exists() else {}


def _record(
    known: dict[str, dict[str, float]], settings: list[dict[str, Any]], args: argparse.Namespace
) -> None:
    def of(outcome: str = "accuracy", **wanted: Any) -> list[float]:
        return [
            known[_key(setting, args)][outcome]
            for setting in settings
            if all(setting[name] == value for name, value in wanted.items())
        ]

    rows = []
    for task in args.tasks:
        for fraction in FRACTIONS:
            k = 100 if fraction == 1 else 10
            alone = of(task=task, fraction=fraction, negatives=0)
            beside = of(task=task, fraction=fraction, negatives=k, weight=args.weight)
            gains = [b - a for a, b in zip(alone, beside, strict=True)]
            rows.append(
                {
                    "task": task,
                    "labels, %": f"{100 * fraction:g}",
                    "alone": _interval(alone),
                    "with RECLAIM": _interval(beside),
                    "gain, same seeds": _interval(gains),
                    "mean gain": round(statistics.mean(gains), 2),
                    "term at the end": statistics.mean(
                        of("term", task=task, fraction=fraction, negatives=k, weight=args.weight)
                    ),
                }
            )
    note = (
        f"Accuracy in %, mean of {args.seeds} seeds (of weights, order and choice of labels) and "
        "95 % interval of Student's t. The whole encoder is trained: "
        f"{args.steps} steps of 32 texts, learning rate {args.learning_rate:g}, at most "
        f"{args.rows:,} training and {args.test_rows:,} test rows. K = 10, with all labels 100; "
        f"lambda {args.weight:g}. Texts whose labels a share leaves out are not trained on at all. "
        "The term at the end is its mean over the last epoch; where nothing tells pairs from "
        f"negatives it is {_ignorant(10):.2f} with K = 10 and {_ignorant(100):.2f} with 100. "
        "Intervals are over seeds, with one test set."
    )
    shared = {"checkpoint": args.checkpoint.name, "seeds": args.seeds, "steps": args.steps}
    record(
        "reclaim_tasks",
        "RECLAIM on real tasks",
        rows,
        note=note,
        settings=shared,
        plots=[
            Plot(
                file="reclaim_tasks",
                title="Gain in accuracy with RECLAIM",
                kind="bars",
                x="task",
                y="mean gain",
                series="labels, %",
            )
        ],
    )
    first = {"task": args.tasks[0], "fraction": 0.1}
    alone = of(**first, negatives=0)
    ablation = [{"K": "none", "lambda": "–", "accuracy": _interval(alone), "gain": "–"}]
    for k, weight in [(k, args.weight) for k in NEGATIVES] + [(10, 0.01), (10, 1.0)]:
        beside = of(**first, negatives=k, weight=weight)
        gains = [b - a for a, b in zip(alone, beside, strict=True)]
        ablation.append(
            {
                "K": str(k),
                "lambda": f"{weight:g}",
                "accuracy": _interval(beside),
                "gain": _interval(gains),
            }
        )
    record(
        "reclaim_ablation",
        f"RECLAIM's K and lambda, {args.tasks[0]} with 10 % of the labels",
        ablation,
        note=note,
        settings=shared,
    )


def _ignorant(k: int) -> float:
    """The term where the critic has nothing to go by, and says -log K of every pair."""
    return math.log1p(k) + k * math.log1p(1 / k)


def _interval(values: Sequence[float]) -> str:
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.1f}"
    quantile = float(student_t.ppf(0.975, len(values) - 1))
    half = quantile * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.1f} ± {half:.1f}"


# ------------------------------------------------------------------------------------- one run


def _outcome(
    files: tuple[Path, Path], setting: dict[str, Any], args: argparse.Namespace
) -> dict[str, float]:
    """`accuracy` on the test set in percent, after training as `setting` says, and `term`,
    RECLAIM's in the last epoch (0 without it)."""
    import logging

    from allennlp.commands.train import TrainModel
    from allennlp.common import Params
    from allennlp.common.util import prepare_environment
    from allennlp.training.util import evaluate

    import declutr.plugin  # noqa: F401 - registers what the configuration names

    logging.disable(logging.WARNING)
    # AllenNLP takes parts out of it, some of which occur twice: as text, they are apart.
    params = Params(json.loads(json.dumps(_configuration(files, setting, args))))
    prepare_environment(params)
    with tempfile.TemporaryDirectory() as folder:
        train = TrainModel.from_params(params, serialization_dir=folder, local_rank=0)
        trained = train.trainer.train()
        model = train.model.eval()
        loader = train.evaluation_data_loader
        loader.index_with(model.vocab)
        metrics = evaluate(model, loader)
    logging.disable(logging.NOTSET)
    return {
        "accuracy": 100 * metrics["accuracy"],
        "term": trained.get("training_reclaim_loss", 0.0),
    }


def _configuration(files: tuple[Path, Path], setting: dict[str, Any], args: Any) -> dict[str, Any]:
    train, test = files
    rows, columns = _size(train)
    transformer = {"type": "pretrained_transformer", "model_name": str(args.checkpoint.resolve())}
    reader = {
        "type": "glue",
        "texts": ["text", "second"][: columns - 1],
        "label": "label",
        "with_ids": setting["negatives"] > 0,
        "tokenizer": {**transformer, "max_length": 64},
        "token_indexers": {"tokens": {**transformer}},
    }
    model: dict[str, Any] = {
        "type": "basic_classifier",
        "namespace": "tags",
        "text_field_embedder": {"token_embedders": {"tokens": {**transformer}}},
        "seq2vec_encoder": {
            "type": "bag_of_embeddings",
            "embedding_dim": _width(args.checkpoint),
            "averaged": True,
        },
    }
    if setting["negatives"]:
        model = {
            "type": "reclaim",
            "model": model,
            "weight": setting["weight"],
            "objective": {
                "type": "reclaim",
                "instances": rows,
                "num_negatives": setting["negatives"],
            },
        }
    batches = max(1, -(-int(rows * setting["fraction"]) // 32))
    epochs = max(1, round(args.steps / batches))
    seed = setting["seed"]
    return {
        **dict.fromkeys(("random_seed", "numpy_seed", "pytorch_seed"), seed + 1),
        "dataset_reader": {
            **reader,
            "label_fraction": setting["fraction"],
            "fraction_seed": seed,
        },
        "validation_dataset_reader": {**reader, "with_ids": False},
        "train_data_path": str(train),
        "test_data_path": str(test),
        "evaluate_on_test": True,
        "model": model,
        "data_loader": {"batch_size": 32, "shuffle": True},
        "validation_data_loader": {"batch_size": 128},
        "trainer": {
            "optimizer": {"type": "huggingface_adamw", "lr": args.learning_rate},
            "learning_rate_scheduler": {
                "type": "slanted_triangular",
                "num_epochs": epochs,
                "num_steps_per_epoch": batches,
            },
            "num_epochs": epochs,
            "cuda_device": -1,
            "run_confidence_checks": False,
            "enable_default_callbacks": False,
            # Dropout and order do not depend on what else draws numbers: the same with and without.
            "callbacks": [{"type": "exact_resume", "seed": seed + 1}],
            "checkpointer": {"save_completed_epochs": False},
        },
    }


def _size(file: Path) -> tuple[int, int]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return len(lines) - 1, lines[0].count("\t") + 1


def _width(checkpoint: Path) -> int:
    return json.loads((checkpoint / "config.json").read_text())["hidden_size"]


# ---------------------------------------------------------------------------------------- data


def _written(task: str, folder: Path, args: argparse.Namespace) -> tuple[Path, Path]:
    """Training and test rows of a task as tables, chosen once for all runs."""
    parts = _parts(task, args.evaluation / "downstream")
    files = folder / f"{task}-train.tsv", folder / f"{task}-test.tsv"
    for file, part, most in zip(files, parts, (args.rows, args.test_rows), strict=True):
        rows = list(part)
        random.Random(0).shuffle(rows)
        names = ["text", "second"][: len(rows[0]) - 1]
        table = ["\t".join([*names, "label"]), *("\t".join(row) for row in rows[:most])]
        file.write_text("\n".join(table) + "\n", encoding="utf-8")
    return files


def _parts(task: str, data: Path) -> tuple[Iterable[Pair], Iterable[Pair]]:
    from declutr.task_models.glue import GlueReader

    def rows(name: str, path: Path) -> list[Pair]:
        return [
            (*row.texts, str(row.label)) for row in GlueReader(task=name, combine=False).rows(path)
        ]

    if task == "SST2":
        folder = data / "SST" / "binary"
        return rows("sst-2", folder / "sentiment-train"), rows("sst-2", folder / "sentiment-test")
    if task == "TREC":
        folder = data / "TREC"
        return rows("trec", folder / "train_5500.label"), rows("trec", folder / "TREC_10.label")
    if task == "SICK-E":
        folder = data / "SICK"
        return rows("sick-e", folder / "SICK_train.txt"), rows(
            "sick-e", folder / "SICK_test_annotated.txt"
        )
    everything = rows("mr", data / "MR")
    random.Random(0).shuffle(everything)
    return everything[2000:], everything[:2000]
