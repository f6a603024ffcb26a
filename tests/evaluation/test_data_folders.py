"""The right folder, and those around it."""

import os
import re
from pathlib import Path

import pytest

from declutr.evaluation.data_folders import LAYOUT, require_data_folder
from declutr.evaluation.suite import all_tasks


def write(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a\n")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """`SentEval/data` with a task of each kind."""
    folder = tmp_path / "SentEval" / "data"
    for file in (
        "downstream/CR/custrev.pos",
        "downstream/STS/STSBenchmark/sts-test.csv",
        "probing/sentence_length.txt",
        "probing_surrogate/own.txt",
        "retrieval/scifact/corpus.jsonl",
        "extra/cranfield/cran.qry.xml",
    ):
        write(folder / file)
    return folder


def test_the_right_one_and_one_that_looks_like_nothing(data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (data, tmp_path / "empty", tmp_path):
        require_data_folder(folder)
    for name in LAYOUT:
        (tmp_path / name / name).mkdir(parents=True)
        require_data_folder(tmp_path / name)


@pytest.mark.parametrize("inside", [*LAYOUT, "downstream/STS", "downstream/CR"])
def test_too_deep(data: Path, tmp_path: Path, inside: str, monkeypatch) -> None:
    right = re.escape(f"expected the folder that it is in: '{data}'")
    with pytest.raises(ValueError, match=rf"is {inside}/ itself, {right}"):
        all_tasks(data / inside)
    monkeypatch.chdir(data / inside)
    with pytest.raises(ValueError, match=rf"'.' is {inside}/ itself, {right}"):
        require_data_folder(Path())
    os.symlink(data / inside, tmp_path / "link")
    with pytest.raises(ValueError, match=right):
        require_data_folder(tmp_path / "link")


def test_too_high(data: Path) -> None:
    with pytest.raises(ValueError, match=rf"'{data}' has. Give that folder"):
        all_tasks(data.parent)


def test_tasks_without_the_folder_around_them(data: Path) -> None:
    moved = (data / "downstream").rename(data.parent / "transfer")
    with pytest.raises(ValueError, match=r"transfer' holds CR, STS, expected .* in downstream/"):
        require_data_folder(moved)
