"""Marks tell which files of the cache are in use."""

from pathlib import Path

import pytest

from declutr.system import cache_folder
from declutr.system.cache_folder import held_alone, mark_in_use


class User:
    """An object that reads from a file."""


def test_a_file_is_free_when_its_users_are(tmp_path: Path) -> None:
    file = tmp_path / "meta.json"
    file.touch()
    first, second = User(), User()
    mark_in_use(file, first)
    mark_in_use(file, second)
    del first
    with held_alone(file) as free:
        assert not free
    del second
    with held_alone(file) as free:
        assert free


def test_without_a_file_or_locks_nothing_is_marked(tmp_path: Path, monkeypatch) -> None:
    user = User()
    mark_in_use(tmp_path / "absent", user)
    with held_alone(tmp_path / "absent") as free:
        assert free
    (tmp_path / "here").touch()
    monkeypatch.setattr(cache_folder, "fcntl", None)
    mark_in_use(tmp_path / "here", user)
    with held_alone(tmp_path / "here") as free:
        assert free


def test_errors_of_the_holder_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    with pytest.raises(FileNotFoundError), held_alone(tmp_path / "here"):
        raise FileNotFoundError
