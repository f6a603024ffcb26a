"""Paraphrase and entailment data in their own formats, complete and broken."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from declutr.evaluation.classifiers import features
from declutr.evaluation.task import PUBLISHED, Task
from declutr.evaluation.tasks import classification
from tests.evaluation.known_encoders import WIDTH, random, sentence
from tests.evaluation.tasks.data_files import (
    QUICK,
    cut,
    damage_is_named,
    replaced,
    task_named,
    write,
)

MRPC = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
SICK_LABELS = ["CONTRADICTION", "NEUTRAL", "ENTAILMENT"]
SNLI_LABELS = ["entailment", "neutral", "contradiction"]


def two(row: int, kind: int) -> tuple[str, str]:
    """Return two sentences whose product and difference reveal the class."""
    return sentence(row, 9), sentence(1000 + row, kind)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    downstream = tmp_path / "downstream"
    for start, file in ((0, "msr_paraphrase_train.txt"), (100, "msr_paraphrase_test.txt")):
        rows = range(start, start + 60)
        lines = [f"{row % 2}\t7\t8\t" + "\t".join(two(row, row % 2)) for row in rows]
        write(downstream / "MRPC" / file, [MRPC, *lines])
    for start, file in ((0, "train"), (100, "trial"), (200, "test_annotated")):
        rows = range(start, start + 60)
        pairs = ["\t".join(two(row, row % 3)) for row in rows]
        labels = [SICK_LABELS[row % 3] for row in rows]
        lines = [f"7\t{p}\t3.5\t{label}" for p, label in zip(pairs, labels, strict=True)]
        write(downstream / "SICK" / f"SICK_{file}.txt", [SICK, *lines])
    for start, split in ((0, "train"), (100, "dev"), (200, "test")):
        rows = range(start, start + 60)
        both = [two(row, row % 3) for row in rows]
        write(downstream / "SNLI" / f"s1.{split}", [first for first, _ in both])
        write(downstream / "SNLI" / f"s2.{split}", [second for _, second in both])
        write(downstream / "SNLI" / f"labels.{split}", [SNLI_LABELS[row % 3] for row in rows])
    return tmp_path


def vectors(sentences: list[str]) -> np.ndarray:
    """Return ones for first sentences and one-hot vectors for others: products are one-hot, too."""
    kinds = [int(text[-1]) for text in sentences]
    rows = [20 * np.eye(WIDTH)[kind] if kind < 9 else np.ones(WIDTH) for kind in kinds]
    return np.stack(rows).astype(np.float32)


def named(data: Path, name: str) -> Task:
    return task_named(name, classification.tasks, data)


def test_all_tasks_exist_without_data(tmp_path: Path) -> None:
    tasks = classification.tasks(tmp_path, QUICK)[-3:]
    assert [(task.name, task.group, task.main) for task in tasks] == [
        (name, "downstream", "accuracy") for name in ("MRPC", "SICK-E", "SNLI")
    ]


@pytest.mark.parametrize("name", ["MRPC", "SICK-E", "SNLI"])
def test_an_encoder_that_knows_the_label_is_always_right(name: str, data: Path) -> None:
    task = named(data, name)
    sentences = task.sentences()
    assert set(two(3, 1 if name == "MRPC" else 0)) <= set(sentences)
    assert len(sentences) == (240 if name == "MRPC" else 360)
    scores = {score.name: score.value for score in task.scores(vectors)}
    assert scores["accuracy"] == 100
    assert scores.get("accuracy_and_f1", 100) == 100
    assert ("f1" in scores) == (name == "MRPC")
    assert len(task.notes()) == task.data.classes == (2 if name == "MRPC" else 3)


def test_snli_is_evaluated_after_every_epoch_of_fifteen_at_most(tmp_path: Path) -> None:
    """The settings are those of SentEval's snli.py; other tasks have those of the protocol."""
    used = {task.name: task._protocol for task in classification.tasks(tmp_path, PUBLISHED)}
    assert used["SNLI"] == replace(PUBLISHED, max_epoch=15, epoch_size=1)
    assert used["MRPC"] == used["SICK-E"] == PUBLISHED


def test_features_made_batch_by_batch_give_the_same_scores(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = named(data, "SNLI").scores(random)
    monkeypatch.setattr(features, "MATERIALISED", 0)
    in_batches = named(data, "SNLI").scores(random)
    for one, other in zip(at_once, in_batches, strict=True):
        for name in one.items:
            np.testing.assert_array_equal(one.items[name], other.items[name])


def drop_line(path: Path) -> None:
    write(path, path.read_text().splitlines()[:-1])


PARAPHRASES = "MRPC/msr_paraphrase_test.txt"
PERHAPS = "got the label 'PERHAPS', expected one of"


@pytest.mark.parametrize(
    ("name", "file", "damage", "message"),
    [
        ("MRPC", "MRPC/msr_paraphrase_train.txt", cut, "middle of line 61, expected 4077 lines"),
        ("MRPC", PARAPHRASES, replaced("0\t7\t8", "0\t7"), "line 2: expected 5 fields, got 4"),
        ("MRPC", PARAPHRASES, replaced("0\t7", "yes\t7"), "line 2: got the label 'yes'"),
        ("SICK-E", "SICK/SICK_trial.txt", replaced("NEUTRAL", "PERHAPS"), PERHAPS),
        (
            "SICK-E",
            "SICK/SICK_test_annotated.txt",
            replaced("NEUTRAL", "ENTAILMENT", -1),
            r"no item of class \['NEUTRAL'\]",
        ),
        ("SNLI", "SNLI/s2.dev", drop_line, "s2.dev has 59 rows, expected 60"),
        ("SNLI", "SNLI/labels.test", drop_line, "labels.test has 59 rows, expected 60"),
        ("SNLI", "SNLI/labels.train", replaced("neutral", "-"), "line 2: got the label '-'"),
        ("MRPC", PARAPHRASES, Path.unlink, "is not there"),
        ("SICK-E", "SICK/SICK_trial.txt", Path.unlink, "is not there"),
        ("SNLI", "SNLI/s2.train", Path.unlink, "is not there"),
        ("SNLI", "SNLI/s1.train", Path.unlink, r"is not there.*trained on it.*no score"),
    ],
)
def test_broken_files_are_named(
    name: str, file: str, damage: Callable, message: str, data: Path
) -> None:
    damage_is_named(data / "downstream" / file, damage, message, lambda: named(data, name))
