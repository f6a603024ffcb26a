"""Probing tasks: their file format, the ten of SentEval, and marked surrogates."""

from dataclasses import replace
from pathlib import Path

import pytest

from declutr.evaluation.task import PROTOTYPING, BrokenData, MissingData
from declutr.evaluation.tasks import probing
from tests.evaluation.known_encoders import random, revealing, sentence

QUICK = replace(PROTOTYPING, batch_size=8, tenacity=1)


def lines(count: int = 180, kinds: int = 3) -> list[str]:
    splits = ["tr"] * (count - 60) + ["va"] * 30 + ["te"] * 30
    return [
        f"{split}\tL{row % kinds}\t{sentence(row, row % kinds)}" for row, split in enumerate(splits)
    ]


def write(path: Path, rows: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def test_all_ten_tasks_exist_without_data(tmp_path: Path) -> None:
    tasks = probing.tasks(tmp_path, QUICK)
    assert len(tasks) == 10
    assert {(task.group, task.main) for task in tasks} == {("probing", "accuracy")}
    files = [
        "sentence_length",
        "word_content",
        "tree_depth",
        "top_constituents",
        "bigram_shift",
        "past_present",
        "subj_number",
        "obj_number",
        "odd_man_out",
        "coordination_inversion",
    ]
    for task, file in zip(tasks, files, strict=True):
        with pytest.raises(MissingData, match=rf"probing/{file}.txt is not there"):
            task.sentences()


def test_known_labels_are_always_right_and_random_embeddings_are_not(tmp_path: Path) -> None:
    write(tmp_path / "probing" / "bigram_shift.txt", lines())
    task = {task.name: task for task in probing.tasks(tmp_path, QUICK)}["BigramShift"]
    assert sorted(task.sentences()) == sorted(sentence(row, row % 3) for row in range(180))
    first = task.scores(revealing)[0]
    assert (first.name, first.value, len(first.items["gold"])) == ("accuracy", 100, 30)
    assert task.scores(random)[0].value < 70
    assert len(task.notes()) == 3


def test_surrogates_are_marked(tmp_path: Path) -> None:
    write(tmp_path / "probing_surrogate" / "past_present.txt", lines())
    *ten, task = probing.tasks(tmp_path, QUICK)
    assert len(ten) == 10
    assert (task.name, task.group) == ("surrogate:past_present", "extra")
    assert task.scores(revealing)[0].value == 100
    assert task.notes() == ["made of other text than the published task: comparable with no paper"]


def test_word_content_always_uses_logistic_regression(tmp_path: Path) -> None:
    tasks = probing.tasks(tmp_path, replace(QUICK, hidden=50))
    assert {task.name: task._protocol.hidden for task in tasks if task._protocol.hidden == 0} == {
        "WordContent": 0
    }


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "va\tL0",
            "dev\tL0",
            r"line 121: got the split 'dev', expected one of \['te', 'tr', 'va'\]",
        ),
        ("te\tL0", "te\tL9", r"line 151: got the label 'L9', expected one of \['L0', 'L1', 'L2'\]"),
        ("tr\tL1\t", "tr\t", r"line 2: expected 3 fields, got 2"),
    ],
)
def test_broken_files_are_named(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "probing" / "tree_depth.txt", lines())
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(BrokenData, match=rf"tree_depth.txt, {message}"):
        probing.tasks(tmp_path, QUICK)[2].sentences()


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (140, r"tree_depth.txt has no line of the split 'te'; it may have been cut off"),
        (152, r"tree_depth.txt has no item of class \['L2'\]"),
    ],
)
def test_a_file_without_its_end_is_refused(keep: int, message: str, tmp_path: Path) -> None:
    write(tmp_path / "probing" / "tree_depth.txt", lines()[:keep])
    with pytest.raises(BrokenData, match=message):
        probing.tasks(tmp_path, QUICK)[2].sentences()


def test_a_file_truncated_within_a_line_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "probing" / "tree_depth.txt", lines())
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(BrokenData, match=r"ends in the middle of line 180, expected 120000 lines"):
        probing.tasks(tmp_path, QUICK)[2].sentences()
