"""What beginning anew in a folder may remove, and what it refuses to."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from allennlp.common import Params

from declutr.runs.run_folder import RunFolder, TrainingError

RUN = json.dumps({"trainer": {}, "dataset_reader": {}})
ROW = '{"text": "a b c"}\n'


def prepared(folder: Path, data: Any, force: bool = True) -> bool:
    config: dict[str, Any] = {"dataset_reader": {"type": "declutr"}, "data_loader": {}}
    config |= {"trainer": {}, "train_data_path": None, "validation_data_path": None}
    run = RunFolder(folder)
    run.require("auto", force)
    return run.prepare(Params(config), data, None, force)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "output"
    place.mkdir()
    return place


def contents(folder: Path) -> dict[str, str]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_text() for file in files}


@pytest.mark.parametrize(
    ("files", "data", "force", "message"),
    [
        (["texts/mine.txt"], "{folder}/texts/mine.txt", False, "is no run, but holds files: texts"),
        (["texts/train.jsonl"], "{folder}/texts/train.jsonl", False, "which this run needs"),
        (["config.json", "data/a.txt"], "{folder}/data/*.txt", True, "which this run needs"),
        (["config.json", "code.py", "best.th"], ["a b"], True, "would remove code.py, which no"),
        (["config.json", "texts.new/mine.txt"], ["a b"], True, "is in the way of texts"),
    ],
)
def test_files_that_no_run_wrote_are_never_removed(
    folder: Path, files: list[str], data: Any, force: bool, message: str
) -> None:
    for name in files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(RUN if name == "config.json" else ROW)
    before = contents(folder)
    with pytest.raises(TrainingError, match=message):
        prepared(folder, data.format(folder=folder) if isinstance(data, str) else data, force)
    assert contents(folder) == before


def test_an_earlier_run_is_removed_by_force(folder: Path) -> None:
    (folder / "config.json").write_text(RUN)
    (folder / "best.th").write_text("weights")
    for name in ("texts/train.jsonl", "evaluations/step_1.json"):
        (folder / name).parent.mkdir()
        (folder / name).write_text(ROW)
    assert prepared(folder, ["d e", "f g"])
    assert sorted(os.listdir(folder)) == ["config.json", "texts"]
    assert "d e" in (folder / "texts" / "train.jsonl").read_text()
