"""Files of this machine are found, and archives extracted, as the package cached-path does."""

import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from allennlp.common import file_utils

from declutr.bridge import local_paths
from declutr.bridge.lending import MissingPackage


def packed(folder: Path, kind: str, text: str = "inside") -> Path:
    """Write an archive of one file `part/a.txt` and return its path."""
    member = folder / "a.txt"
    member.write_text(text)
    path = folder / f"archive.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.write(member, "part/a.txt")
    else:
        with tarfile.open(path, "w:gz") as tar:
            tar.add(member, "part/a.txt")
    return path


@pytest.fixture(params=["ours", "cached-path"])
def cached_path(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Return our function, and that of the package, which must do the same."""
    if request.param == "ours":
        return local_paths.cached_path
    return pytest.importorskip("cached_path").cached_path


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_archives_are_extracted(
    cached_path: Callable[..., Path], kind: str, tmp_path: Path
) -> None:
    archive, cache = packed(tmp_path, kind), tmp_path / "cache"
    assert cached_path(archive, cache_dir=cache) == archive
    folder = cached_path(archive, cache_dir=cache, extract_archive=True)
    assert (folder / "part/a.txt").read_text() == "inside" and folder.parent == cache
    found = cached_path(f"{archive}!part/a.txt", cache_dir=cache, extract_archive=True)
    assert found == folder / "part/a.txt"
    found.write_text("changed")
    assert cached_path(archive, cache_dir=cache, extract_archive=True) == folder
    assert found.read_text() == "changed"
    cached_path(archive, cache_dir=cache, extract_archive=True, force_extract=True)
    assert found.read_text() == "inside"
    with pytest.raises(FileNotFoundError, match=r"'b\.txt' not found within"):
        cached_path(f"{archive}!b.txt", cache_dir=cache, extract_archive=True)


def test_another_file_of_the_same_name_is_extracted_anew(
    cached_path: Callable[..., Path], tmp_path: Path
) -> None:
    archive = packed(tmp_path, "zip")
    first = cached_path(archive, cache_dir=tmp_path / "cache", extract_archive=True)
    packed(tmp_path, "zip", "another text")
    os.utime(archive, (1, 1))
    second = cached_path(archive, cache_dir=tmp_path / "cache", extract_archive=True)
    assert first != second and (second / "part/a.txt").read_text() == "another text"


def test_paths_are_returned_as_they_are(
    cached_path: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a!b.txt").write_text("x")
    for text in ("~/a!b.txt", f"file://{tmp_path}/a!b.txt", str(tmp_path / "a!b.txt")):
        assert cached_path(text, cache_dir=tmp_path / "cache") == tmp_path / "a!b.txt"
    assert cached_path(tmp_path, cache_dir=tmp_path / "c", extract_archive=True) == tmp_path
    with pytest.raises(FileNotFoundError, match="nothing not found"):
        cached_path(tmp_path / "nothing", cache_dir=tmp_path / "cache")


def test_nothing_is_made_in_a_home_folder_to_find_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container with another user, nothing can be made there."""
    (tmp_path / "home").touch()
    monkeypatch.setattr(file_utils, "CACHE_DIRECTORY", str(tmp_path / "home/cache"))
    assert file_utils.cached_path(tmp_path) == str(tmp_path)
    assert file_utils.cached_path(tmp_path / "home", extract_archive=False) == f"{tmp_path}/home"
    with pytest.raises(FileNotFoundError, match="nothing not found"):
        file_utils.cached_path(tmp_path / "nothing")
    with pytest.raises(NotADirectoryError):  # which is to be extracted there
        file_utils.cached_path(packed(tmp_path, "zip"), None, True)


def test_an_archive_that_writes_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("evil")
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.add(tmp_path / "a.txt", "../../outside.txt")
    with pytest.raises(tarfile.OutsideDestinationError):
        local_paths.cached_path(tmp_path / "evil.tar", tmp_path / "c", extract_archive=True)
    assert not [place for place in (tmp_path / "c").iterdir() if place.is_dir()]


def test_a_url_names_the_extra(tmp_path: Path) -> None:
    for url in ("https://a.b/c.txt", "hf://a/b", "s3://a/b!c"):
        with pytest.raises(MissingPackage, match=r"is a URL.*pip install 'declutr\[remote\]'"):
            local_paths.cached_path(url, tmp_path, extract_archive=True)


def test_urls_and_existing_files_are_told_from_others(tmp_path: Path) -> None:
    known = local_paths.is_url_or_existing_file
    assert known("https://a.b") and known(tmp_path) and known("~")
    assert not known(tmp_path / "nothing") and not known(None) and not known("")


def test_a_lock_warns_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".lock"
    with local_paths.FileLock(path) as lock:
        assert lock.is_locked
    path.touch()

    def refused(self: object, *args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(local_paths.filelock.FileLock, "acquire", refused)
    with pytest.raises(PermissionError), local_paths.FileLock(path):
        pass
    with (
        pytest.warns(UserWarning, match="Lacking permissions for the lock"),
        local_paths.FileLock(path, read_only_ok=True),
    ):
        pass
