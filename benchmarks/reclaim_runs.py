"""One run of `reclaim_tasks`: a row of the paper's tables is trained on a task, and tested.

Each run has a process of its own, forked from one that has imported everything. So its memory is
its own, and it costs no start of an interpreter.
"""

from __future__ import annotations

import json
import logging
import os
import random
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.common.util import prepare_environment
from allennlp.training.util import evaluate

from benchmarks.memory import sizes_in
from declutr.recipes import recipe_path
from declutr.task_models.glue.labelled_rows import fraction_of_rows

ALONE = "task alone"
RECIPES = {
    ALONE: "reclaim_task_alone",
    "in-batch": "in_batch",
    "80 %": "random_bank",
    "80 % + Lipschitz": "random_bank_lipschitz",
    "K = 1": "negatives_1",
    "K = 10": "negatives_10",
    "K = 100": "reclaim",
    "K = 300": "negatives_300",
    "in-batch + Lipschitz": "in_batch_lipschitz",
    "without Lipschitz": "no_lipschitz",
    "lambda = 0.01": "weight_0.01",
    "lambda = 0.5": "weight_0.5",
    "lambda = 1": "weight_1",
}
"""By the name in the tables, the recipe that the settings of RECLAIM's term are read from."""

TASKS = "SST2", "TREC", "MR", "SUBJ", "SICK-E"
BATCH = 32  # as in the recipes

_SPLIT = {
    "SST2": ("sst-2", "SST/binary", "sentiment-train", "sentiment-test"),
    "TREC": ("trec", "TREC", "train_5500.label", "TREC_10.label"),
    "SICK-E": ("sick-e", "SICK", "SICK_train.txt", "SICK_test_annotated.txt"),
}
"""Of tasks with files for training and test: the reader's name, the folder and both files."""

Pair = tuple[str, ...]


def outcome_in_fork(files: tuple[Path, Path], setting: dict[str, Any]) -> dict[str, float]:
    """Run `outcome` in a forked process, which ends with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(outcome, files, setting).result()


def outcome(files: tuple[Path, Path], setting: dict[str, Any]) -> dict[str, float]:
    """Train as `setting` says and test.

    # Returns

    `accuracy` on the test set in percent; `term`, RECLAIM's in the last epoch (0 without it);
    `seconds` of processor time in training; `memory_mb`, the highest that training and test added
    to what the process had at first.
    """
    before = sizes_in("/proc/self/status")["VmRSS"]
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        train_file = _labelled(files[0], setting, Path(folder, "train.tsv"))
        # AllenNLP takes parts out of it, some of which occur twice: as text, they are apart.
        params = Params(json.loads(json.dumps(configuration(train_file, files[1], setting))))
        prepare_environment(params)
        train = TrainModel.from_params(params, serialization_dir=folder, local_rank=0)
        begun = time.process_time()
        trained = train.trainer.train()
        seconds = time.process_time() - begun
        model, loader = train.model.eval(), train.evaluation_data_loader
        loader.index_with(model.vocab)
        metrics = evaluate(model, loader)
    return {
        "accuracy": 100 * metrics["accuracy"],
        "term": trained.get("training_reclaim_loss", 0.0),
        "seconds": seconds,
        # That of a forked process begins with what it has then.
        "memory_mb": (sizes_in("/proc/self/status")["VmHWM"] - before) / 1e6,
    }


def of_recipe(row: str) -> tuple[dict[str, Any] | None, float]:
    """Return the settings of a row's objective (`None` for the task alone), and its lambda."""
    os.environ.setdefault("TRANSFORMER_MODEL", "unused")
    file = str(recipe_path(RECIPES[row], of_package=True))
    model = Params.from_file(file).as_dict(quiet=True)["model"]
    return model.get("objective"), model.get("weight", 0.0)


def _labelled(file: Path, setting: dict[str, Any], share: Path) -> Path:
    """Write the rows that the reader would choose by `label_fraction`, as the training data.

    So `instances` and the first bias of the critic are those of the small training set.
    """
    header, *rows = file.read_text(encoding="utf-8").splitlines()
    labels = [row.rpartition("\t")[2] for row in rows]
    chosen = fraction_of_rows(labels, setting["fraction"], setting["seed"])
    share.write_text("\n".join([header, *(rows[i] for i in chosen)]) + "\n", encoding="utf-8")
    return share


def configuration(train: Path, test: Path, setting: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of a run of AllenNLP."""
    rows, columns = _size(train)
    checkpoint = setting["checkpoint"]
    transformer = {"type": "pretrained_transformer", "model_name": checkpoint}
    objective, weight = of_recipe(setting["row"])
    reader = {
        "type": "glue",
        "texts": ["text", "second"][: columns - 1],
        "label": "label",
        "with_ids": objective is not None,
        "tokenizer": {**transformer, "max_length": 64},
        "token_indexers": {"tokens": {**transformer}},
    }
    width = json.loads((Path(checkpoint) / "config.json").read_text())["hidden_size"]
    model: dict[str, Any] = {
        "type": "basic_classifier",
        "namespace": "tags",
        "text_field_embedder": {"token_embedders": {"tokens": {**transformer}}},
        "seq2vec_encoder": {"type": "bag_of_embeddings", "embedding_dim": width, "averaged": True},
    }
    if objective is not None:
        objective = {**objective, "instances": rows}
        model = {"type": "reclaim", "model": model, "weight": weight, "objective": objective}
    seed = setting["seed"]
    return {
        **dict.fromkeys(("random_seed", "numpy_seed", "pytorch_seed"), seed + 1),
        "dataset_reader": reader,
        "validation_dataset_reader": {**reader, "with_ids": False},
        "train_data_path": str(train),
        "test_data_path": str(test),
        "evaluate_on_test": True,
        "model": model,
        "data_loader": {"batch_size": BATCH, "shuffle": True},
        "validation_data_loader": {"batch_size": 128},
        "trainer": _trainer(setting, rows),
    }


def _trainer(setting: dict[str, Any], rows: int) -> dict[str, Any]:
    batches = -(-rows // BATCH)
    epochs = max(1, round(setting["steps"] / batches))
    return {
        "optimizer": {"type": "huggingface_adamw", "lr": setting["learning_rate"]},
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
        "callbacks": [{"type": "exact_resume", "seed": setting["seed"] + 1}],
        "checkpointer": {"save_completed_epochs": False},
    }


def _size(file: Path) -> tuple[int, int]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return len(lines) - 1, lines[0].count("\t") + 1


# ---------------------------------------------------------------------------------------- data


def written(
    task: str, evaluation: Path, folder: Path, rows: int, test_rows: int
) -> tuple[Path, Path]:
    """Write training and test rows of a task as tables, chosen once for all runs."""
    parts = _parts(task, evaluation / "downstream")
    most = {"train": rows, "test": test_rows}
    files = [folder / f"{task}-{kind}-{count}.tsv" for kind, count in most.items()]
    for file, part, count in zip(files, parts, most.values(), strict=True):
        chosen = list(part)
        random.Random(0).shuffle(chosen)
        names = ["text", "second"][: len(chosen[0]) - 1]
        table = ["\t".join([*names, "label"]), *("\t".join(row) for row in chosen[:count])]
        file.write_text("\n".join(table) + "\n", encoding="utf-8")
    return files[0], files[1]


def _parts(task: str, data: Path) -> tuple[Iterable[Pair], Iterable[Pair]]:
    from declutr.task_models.glue import GlueReader

    def rows(name: str, *path: str) -> list[Pair]:
        reader = GlueReader(task=name, combine=False)
        return [(*row.texts, str(row.label)) for row in reader.rows(data.joinpath(*path))]

    if task in _SPLIT:
        name, folder, train, test = _SPLIT[task]
        return rows(name, folder, train), rows(name, folder, test)
    everything = rows(task.lower(), task)
    random.Random(0).shuffle(everything)
    return everything[2000:], everything[:2000]
