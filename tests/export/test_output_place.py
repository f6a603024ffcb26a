"""Tests of the folder in which an export is made, and of moving it to its target."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from declutr.export.output_place import ExportError, folder_beside, move

_KILLED = """
import os, pathlib, signal
from declutr.export.output_place import folder_beside
with folder_beside(pathlib.Path("out")) as beside:
    (beside / "half").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def made(folder: Path, name: str) -> None:
    with folder_beside(folder) as beside:
        (beside / name).touch()
        move(beside, folder)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_what_a_killed_export_left_goes_and_what_another_makes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-c", _KILLED], check=False, env={**os.environ})
    (left,) = tmp_path.iterdir()
    (tmp_path / ".out.declutr-mine").mkdir()  # without a lock
    with folder_beside(Path("out")) as other:
        assert not left.exists()
        made(Path("out"), "whole")
        assert other.is_dir()
    assert sorted(os.listdir()) == [".out.declutr-mine", "out"] and os.listdir("out") == ["whole"]


def test_an_earlier_export_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "out", "first")
    with (
        pytest.raises(FileNotFoundError),
        folder_beside(tmp_path / "out") as beside,
    ):
        shutil.rmtree(beside)
        move(beside, tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"] and os.listdir(tmp_path / "out") == ["first"]


@pytest.mark.parametrize("back", [True, False], ids=["put back", "cannot be put back"])
def test_an_earlier_export_outlives_an_interrupted_move(
    back: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "out", "first")
    rename = os.rename

    def interrupted(source: Path, target: Path) -> None:
        if source.name == "new":
            raise KeyboardInterrupt
        if source.name == "old" and not back:
            raise OSError
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt if back else OSError):
        made(tmp_path / "out", "second")
    (kept,) = tmp_path.rglob("first")
    assert (kept.parent == tmp_path / "out") is back


def test_the_only_export_stays_where_a_kill_left_it(tmp_path: Path) -> None:
    left = tmp_path / ".out.declutr-12345678"
    (left / "old").mkdir(parents=True)
    (left / ".lock").touch()
    with folder_beside(tmp_path / "out"):
        assert left.exists()
    made(tmp_path / "out", "new")
    made(tmp_path / "out", "newer")
    assert not left.exists()


def test_an_export_goes_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "there" / "real").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "real", target_is_directory=True)
    made(link, "model")
    made(link, "again")
    assert link.is_symlink() and os.listdir(tmp_path / "there") == ["real"]
    assert os.listdir(link) == ["again"]


def test_a_mounted_volume_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == tmp_path)
    with (
        pytest.raises(ExportError, match=r"is a mounted volume.*Name a folder in it"),
        folder_beside(tmp_path),
    ):
        raise AssertionError


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    full = "Error while serializing: I/O error: No space left on device (os error 28)"
    with (
        pytest.raises(ExportError, match=r"out' cannot be written: .*No space left"),
        folder_beside(tmp_path / "out"),
    ):
        raise RuntimeError(full)  # of safetensors, whose error is no OSError
    assert os.listdir(tmp_path) == []
