"""Probing tasks: their file format, the ten of SentEval, and marked surrogates."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from declutr.evaluation.task import BrokenData, MissingData
from declutr.evaluation.tasks import probing
from tests.evaluation.known_encoders import random, revealing, sentence
from tests.evaluation.tasks.data_files import (
    QUICK,
    cut,
    replaced,
    task_named,
    without_lines,
    write,
)

SPLITS = ["tr"] * 120 + ["va"] * 30 + ["te"] * 30
LINES = [f"{split}\tL{n % 3}\t{sentence(n, n % 3)}" for n, split in enumerate(SPLITS)]
FILES = (
    "sentence_length word_content tree_depth top_constituents bigram_shift past_present "
    "subj_number obj_number odd_man_out coordination_inversion"
)


def test_all_ten_tasks_exist_without_data(tmp_path: Path) -> None:
    tasks = probing.tasks(tmp_path, QUICK)
    assert len(tasks) == 10
    assert {(task.group, task.main) for task in tasks} == {("probing", "accuracy")}
    for task, file in zip(tasks, FILES.split(), strict=True):
        with pytest.raises(MissingData, match=rf"probing/{file}.txt is not there"):
            task.sentences()


def test_known_labels_are_always_right_and_random_embeddings_are_not(tmp_path: Path) -> None:
    write(tmp_path / "probing" / "bigram_shift.txt", LINES)
    task = task_named("BigramShift", probing.tasks, tmp_path)
    assert sorted(task.sentences()) == sorted(sentence(row, row % 3) for row in range(180))
    first = task.scores(revealing)[0]
    assert (first.name, first.value, len(first.items["gold"])) == ("accuracy", 100, 30)
    assert task.scores(random)[0].value < 70
    assert len(task.notes()) == 3


def test_surrogates_are_marked(tmp_path: Path) -> None:
    write(tmp_path / "probing_surrogate" / "past_present.txt", LINES)
    *ten, task = probing.tasks(tmp_path, QUICK)
    assert len(ten) == 10
    assert (task.name, task.group) == ("surrogate:past_present", "extra")
    assert task.scores(revealing)[0].value == 100
    assert task.notes() == ["made of other text than the published task: comparable with no paper"]


def test_word_content_always_uses_logistic_regression(tmp_path: Path) -> None:
    tasks = probing.tasks(tmp_path, replace(QUICK, hidden=50))
    assert [task.name for task in tasks if task._protocol.hidden == 0] == ["WordContent"]


LABELS, OTHER_SPLIT = r"\['L0', 'L1', 'L2'\]", r"expected one of \['te', 'tr', 'va'\]"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (replaced("va\tL0", "dev\tL0"), f", line 121: got the split 'dev', {OTHER_SPLIT}"),
        (replaced("te\tL0", "te\tL9"), f", line 151: got the label 'L9', expected one of {LABELS}"),
        (replaced("tr\tL1\t", "tr\t"), r", line 2: expected 3 fields, got 2"),
        (without_lines("te\t"), " has no line of the split 'te'; it may have been cut off"),
        (lambda path: write(path, LINES[:152]), r" has no item of class \['L2'\]"),
        (lambda path: cut(path, 5), " ends in the middle of line 180, expected 120000 lines"),
    ],
)
def test_broken_files_are_named(damage: Callable, message: str, tmp_path: Path) -> None:
    damage(write(tmp_path / "probing" / "tree_depth.txt", LINES))
    with pytest.raises(BrokenData, match=f"tree_depth.txt{message}"):
        probing.tasks(tmp_path, QUICK)[2].sentences()
