"""The cache folder, and the marks by which processes tell that they use something in it.

It holds files that can be made again: tokenised corpora, word vectors, digests and measurements.
`declutr.environment.cache_entries` lists them all, and removes none that is in use.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from declutr.system import local_path

try:
    import fcntl
except ImportError:  # Windows has no such locks; there, open files cannot be removed anyway.
    fcntl = None  # type: ignore[assignment]

CACHE_VARIABLE = "DECLUTR_CACHE"
"""The environment variable that names the cache folder."""

STATIC_TABLES = "static-tables"
"""The folder, in the cache, of first tables of static encoders."""


def default_cache_dir() -> Path:
    """Return the folder of files that can be recreated: `$DECLUTR_CACHE` or `~/.cache/declutr`."""
    folder = os.environ.get(CACHE_VARIABLE)
    return local_path(folder) if folder else Path.home() / ".cache" / "declutr"


def mark_in_use(file: str | os.PathLike, user: object) -> None:
    """Note that a file of the cache is used now, and mark it until an object is freed.

    The time of use is the modification time of the file's folder. The mark is a shared lock of the
    file, which ends with the process at the latest, and which forked processes keep. A cache that
    is read-only or without locks has neither.

    # Parameters

    file : a file in the folder that is used, such as `meta.json` of a token store.
    user : the object that reads from the entry; a weak reference to it must be possible.
    """
    with suppress(OSError):
        opened = os.open(file, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        weakref.finalize(user, os.close, opened)
        with suppress(OSError):  # It may belong to somebody else.
            os.utime(Path(file).parent)
        if fcntl is not None:
            fcntl.flock(opened, fcntl.LOCK_SH)


@contextmanager
def held_alone(file: str | os.PathLike) -> Iterator[bool]:
    """Yield whether no running process has marked a file by `mark_in_use`.

    Within this context no process can begin to use it: a call of `mark_in_use` waits for the end.
    """
    opened, free = None, True
    with suppress(OSError):  # There may be no file.
        opened = os.open(file, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        if opened is not None and fcntl is not None:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                free = False
            except OSError:  # The file system has no locks.
                pass
        yield free
    finally:
        if opened is not None:
            os.close(opened)
