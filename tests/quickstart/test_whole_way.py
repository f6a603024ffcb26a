"""Tests of the quickstart as `make train` runs it, on two small packages for one epoch."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from declutr.quickstart import require_own
from declutr.quickstart.static_encoder import QUERIES

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "scripts" / "quickstart.py"
SMALL = {
    "trainer.num_epochs": 1,
    "data_loader.batch_size": 16,
    "validation_data_loader.batch_size": 16,
    "data_loader.num_workers": 0,
}


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("somewhere") / "quickstart"
    return folder, run(folder)


def run(folder: Path, *more: str) -> str:
    command = [sys.executable, str(SCRIPT), "--folder", str(folder), "-o", json.dumps(SMALL)]
    command += ["--packages", "allennlp", *more]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_quickstart_trains_embeds_and_reports(quickstart: tuple[Path, str]) -> None:
    folder, output = quickstart
    for name in ("train.txt", "validation.txt", "transformer/config.json", "model/model.tar.gz"):
        assert (folder / name).exists(), name
    rows = (folder / "embeddings.jsonl").read_text().splitlines()
    assert len(rows) == len((folder / "validation.txt").read_text().splitlines())
    assert len(json.loads(rows[0])["embeddings"]) == 128
    for part in ("before", "after", "validation loss", "span retrieval accuracy", "Next:"):
        assert part in output
    assert "TRANSFORMER_MODEL=distilroberta-base" in output
    assert f"$ declutr train static_declutr {folder / 'train.txt'} -s {folder / 'static'}" in output
    assert all(f'"{query}"' in output for query in QUERIES)
    shares = re.findall(r"    (\w.*, .*\w) +([\d.]+)%   \([\d.]+% to [\d.]+%\)", output)
    assert [name for name, _ in shares] == [
        *("static encoder, first table", "static encoder, trained"),
        *("transformer, untrained", "transformer, trained"),
    ]


def test_a_second_run_keeps_what_is_there(quickstart: tuple[Path, str]) -> None:
    folder, first = quickstart
    stamp = (folder / "model" / "model.tar.gz").stat().st_mtime_ns
    second = run(folder)
    assert second.count("kept from an earlier run") == 5
    assert (folder / "model" / "model.tar.gz").stat().st_mtime_ns == stamp
    numbers = [line for line in first.splitlines() if "validation loss" in line]
    assert numbers == [line for line in second.splitlines() if "validation loss" in line]


def test_force_deletes_only_a_quickstart(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), "--force"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "does not look like a quickstart" in done.stderr
    assert (tmp_path / "mine.txt").exists()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("precious")
    for more in ([], ["--force"]):
        command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), *more]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode != 0 and str(tmp_path) in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["train.txt"]
    assert (tmp_path / "train.txt").read_text() == "precious"
    with pytest.raises(FileExistsError, match=r"train\.txt, which no quickstart has written"):
        require_own(tmp_path)
    (tmp_path / ".make_corpus.done").touch()  # the mark of releases up to 2.4.7
    require_own(tmp_path)
    require_own(tmp_path / "new")
