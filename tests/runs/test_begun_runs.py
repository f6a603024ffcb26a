"""Tests of how a call differs from the run that it would go on with."""

import json
from pathlib import Path
from typing import Any

import pytest
from allennlp.common import Params

from declutr.runs.begun_runs import DATA, begun_otherwise, data_digests

CONFIG: dict[str, Any] = {"model": {"type": "declutr"}, "trainer": {"type": "declutr"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a run over two texts in memory."""
    (tmp_path / "run" / "texts").mkdir(parents=True)
    (tmp_path / "run" / "texts" / "train.jsonl").write_text("1\n2\n")
    path = str(tmp_path / "run" / "texts" / "train.jsonl")
    (tmp_path / "run" / "config.json").write_text(json.dumps(CONFIG | {"train_data_path": path}))
    return tmp_path / "run"


def apart(folder: Path, texts: str, **changes: Any) -> list[str]:
    """Return the differences of a call with these texts and keys of the configuration."""
    new = folder / "texts.new"
    new.mkdir()
    (new / "train.jsonl").write_text(texts)
    path = {"train_data_path": str(folder.parent / "moved" / "texts" / "train.jsonl")}
    return begun_otherwise(folder, Params(CONFIG | path | changes), new, {"train.jsonl"})


@pytest.mark.parametrize(
    ("texts", "row"),
    [("1\n3\n", "first in row 2"), ("1\n2\n3\n", "agree in 2 rows"), ("", "agree in 0 rows")],
)
def test_other_texts_are_told_by_their_row(folder: Path, texts: str, row: str) -> None:
    (found,) = apart(folder, texts)
    assert found.startswith("the texts in train.jsonl differ") and row in found


def test_equal_texts_in_a_moved_folder_are_the_same_run(folder: Path) -> None:
    assert apart(folder, "1\n2\n") == []


def test_keys_are_compared_first_but_for_those_that_may_change(folder: Path) -> None:
    changes = {"trainer": {"type": "gradient_descent"}, "distributed": {"cuda_devices": [0]}}
    assert apart(folder, "3\n", **changes, random_seed=1) == ["random_seed is 1, and was not given"]


def test_files_are_compared_by_their_content(folder: Path) -> None:
    data = folder.parent / "data.txt"
    data.write_text("a b c\n")
    config = CONFIG | {"train_data_path": str(data)}
    (folder / "config.json").write_text(json.dumps(config))
    before = data_digests(config, folder)
    data.write_text("a b d\n")
    assert begun_otherwise(folder, Params(config), folder / "none", set()) == []  # as of 2.4.7
    (folder / DATA).write_text(json.dumps(before))
    (found,) = begun_otherwise(folder, Params(config), folder / "none", set())
    assert found == "the files of train_data_path are not those that it began with"
    data.unlink()  # a finished run is opened without its data
    assert begun_otherwise(folder, Params(config), folder / "none", set()) == []
