"""The folder that a run writes to: made if need be, and for one run at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from declutr.inference.bulk.manifest import EmbeddingFolderError

LOCK = ".lock"


@contextmanager
def output_folder(folder: Path) -> Iterator[None]:
    """Make the folder, and keep other runs out of it inside.

    # Raises

    `EmbeddingFolderError` : it is a file, it cannot be made or written to, or another run is
        writing to it.
    """
    if folder.exists() and not folder.is_dir():
        raise EmbeddingFolderError(f"'{folder}' is a file, expected a folder or a new name.")
    lock = FileLock(folder / LOCK)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        raise EmbeddingFolderError(
            f"Another run is writing to '{folder}'. Wait for it, or choose another folder."
        ) from error
    except OSError as error:
        raise EmbeddingFolderError(
            f"'{folder}' cannot be written to ({error.strerror or error}). Choose another folder."
        ) from error
    try:
        yield
    finally:
        lock.release()
