"""The part of the package cached-path that needs no network, for AllenNLP without that package."""

import errno
import hashlib
import os
import shutil
import tarfile
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any, Union

import filelock

from declutr.bridge.lending import MissingPackage

PathOrStr = Union[str, os.PathLike]

_UNWRITABLE = (errno.EPERM, errno.EACCES, errno.EROFS)


def cached_path(
    url_or_filename: PathOrStr,
    cache_dir: PathOrStr,
    extract_archive: bool = False,
    force_extract: bool = False,
) -> Path:
    """Return the path of a file or folder of this machine, or of what an archive was extracted to.

    # Parameters

    url_or_filename : a path, `file://` and a path, or the path of an archive, `!` and that of a
        file in it.
    cache_dir : the folder to extract archives in.
    extract_archive : whether to extract an archive (tar or zip) and return the folder of it.
    force_extract : whether to extract it again if it has been extracted before.

    # Raises

    `MissingPackage` : for a URL.
    `FileNotFoundError` : nothing is there.
    """
    text = str(url_or_filename).removeprefix("file://")
    if "://" in text:
        raise MissingPackage(
            f"'{text}' is a URL, which AllenNLP opens with the package cached-path, which is not "
            "installed: pip install 'declutr[remote]'. Or download the file and give its path."
        )
    archive, mark, inside = text.partition("!") if extract_archive else (text, "", "")
    path = Path(os.path.expanduser(archive))
    if not path.exists():
        raise FileNotFoundError(f"file {path} not found")
    if (
        extract_archive
        and path.is_file()
        and (tarfile.is_tarfile(path) or zipfile.is_zipfile(path))
    ):
        path = _extracted(path, Path(os.path.expanduser(cache_dir)), force_extract)
    if mark and not (path / inside).exists():
        raise FileNotFoundError(f"'{inside}' not found within '{archive}'")
    return path / inside if mark else path


def is_url_or_existing_file(url_or_filename: PathOrStr | None) -> bool:
    """Return whether this is a URL, or the path of something that exists."""
    text = str(url_or_filename or "")
    return "://" in text or os.path.exists(os.path.expanduser(text))


def _extracted(archive: Path, cache: Path, again: bool) -> Path:
    """Return the folder of the files of an archive, named by its path and time of change."""
    cache.mkdir(parents=True, exist_ok=True)
    state = f"{archive.resolve()} {archive.stat().st_mtime_ns}"
    folder = cache / f"{hashlib.sha256(state.encode()).hexdigest()}-extracted"
    with filelock.FileLock(f"{folder}.lock"):
        if folder.is_dir() and not again:
            return folder
        with tempfile.TemporaryDirectory(dir=cache) as unfinished:
            files = Path(unfinished, "files")
            if tarfile.is_tarfile(archive):
                with tarfile.open(archive) as tar:
                    tar.extractall(files, filter="data")
            else:
                with zipfile.ZipFile(archive) as zipped:
                    zipped.extractall(files)
            shutil.rmtree(folder, ignore_errors=True)
            files.replace(folder)
    return folder


class FileLock(filelock.FileLock):  # type: ignore[misc, valid-type]
    """A lock that can be told to do without itself where nothing can be written.

    # Parameters

    lock_file : the path of the lock.
    timeout : in seconds; negative to wait for as long as it takes.
    read_only_ok : whether to warn instead of raising if the file of the lock cannot be written.
    """

    def __init__(
        self, lock_file: PathOrStr, timeout: float = -1, read_only_ok: bool = False
    ) -> None:
        super().__init__(str(lock_file), timeout=timeout)
        self._read_only_ok = read_only_ok

    def acquire(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().acquire(*args, **kwargs)
        except OSError as error:
            unwritable = error.errno in _UNWRITABLE and os.path.isfile(self.lock_file)
            if not (self._read_only_ok and unwritable):
                raise
            warnings.warn(
                f"Lacking permissions for the lock '{self.lock_file}'. Nothing else may write "
                "there meanwhile.",
                stacklevel=2,
            )
            return None
