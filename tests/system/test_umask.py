"""Modes are those of files and folders that are made in the plain way."""

import os
import stat
from pathlib import Path

import pytest

from declutr.system.umask import use_umask


@pytest.fixture(params=[0o022, 0o027, 0o002])
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_as_if_made_in_the_plain_way(tmp_path: Path, umask: int) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "file").touch()
    (tmp_path / "closed").mkdir(mode=0o700)
    (tmp_path / "closed" / "file").touch(mode=0o600)
    use_umask([tmp_path / "closed", tmp_path / "closed" / "file"])
    assert mode(tmp_path / "closed") == mode(tmp_path / "plain") == 0o777 & ~umask
    assert mode(tmp_path / "closed/file") == mode(tmp_path / "plain/file") == 0o666 & ~umask
    assert os.umask(umask) == umask  # as it was
