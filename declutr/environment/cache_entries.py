"""The entries of the cache folder, by kind, and their removal.

An entry is recognised by its name and by the names of the files in it. All else in the folder is
not of this package, is listed as such, and is never removed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from declutr.system.cache_folder import STATIC_TABLES, held_alone

KINDS = {
    "corpus": "a tokenised corpus",
    "digests": "digests of files, by which changes are noticed",
    "static-table": "the first table of a static encoder; its texts give it again",
    "timings": "measured times of kernels",
    "unfinished": "what a process was writing when it ended; tokenising goes on from it",
    "word-vectors": "parsed word vectors",
}
"""The kinds of entries, each with what it is."""

_STORE = re.compile(r"[0-9a-f]{32}")
_PARTIAL = re.compile(r"[0-9a-f]{32}\.partial(-.*)?")
_TABLE = re.compile(r"[0-9a-f]{32}(-\d+)?")
_TEMPORARY = re.compile(r"(digests|kernels)\.json(\.\d+)?\.tmp")
_LOCK = re.compile(r"((run-)?[0-9a-f]{32}(-\d+)?|digests(-[0-9a-f]{16})?|kernels\.json)\.lock")
_REMOVED = ".pruned"  # the suffix of a folder whose removal was begun
_TABLES = {"word-vectors": "word-vectors", STATIC_TABLES: "static-table"}
"""The folders of tables in the cache, and the kinds of their entries."""
_FILES = {
    *("meta.json", "checksums.json", "values.npy", "offsets.npy", "num_tokens.npy"),
    *("journal.json", "read-as-by-1.5", "meta.json.damaged"),
    *("shape.json", "words.txt", "vectors.f32"),
    *("model.safetensors", "modules.json", "config_sentence_transformers.json"),
    *("tokenizer.json", "tokenizer_config.json", "static_embedding.json"),
}
"""The names of files in the folders of this package."""
_FRESH = 3600.0  # seconds after its last change for which a temporary file may still be written


class Entry(NamedTuple):
    """One entry of the cache folder.

    # Parameters

    path : the file or folder.
    kind : one of `KINDS`, or `None` for what is not of this package.
    size : its size on disk in bytes; 0 if it is not of this package.
    used : when it was last used, in seconds since 1970; 0 if it is not of this package.
    about : what it is of, for people.
    """

    path: Path
    kind: str | None
    size: int
    used: float
    about: str


class Removal(NamedTuple):
    """The result of removing an entry: `kept` is the reason why it is still there, or `None`."""

    entry: Entry
    kept: str | None


def entries(cache: Path) -> list[Entry]:
    """Return all entries of a cache folder, the largest first; an absent folder has none."""
    folders = [cache, *(cache / name for name in _TABLES)]
    paths = [path for folder in folders if folder.is_dir() for path in folder.iterdir()]
    found = []
    for path in paths:
        if (path.parent == cache and path.name in _TABLES) or _LOCK.fullmatch(path.name):
            continue
        try:
            kind = _kind(path)
            size, used = (0, 0.0) if kind is None else _size_and_use(path)
            found.append(Entry(path, kind, size, used, _about(path, kind)))
        except (FileNotFoundError, PermissionError):  # just removed, or not of this user
            continue
    return sorted(found, key=lambda entry: (-entry.size, entry.path))


def remove(chosen: list[Entry]) -> Iterator[Removal]:
    """Remove entries that no running process uses, and yield what became of each.

    # Parameters

    chosen : entries of `entries`; those of other programs are kept.
    """
    for entry in chosen:
        if entry.kind is None:
            yield Removal(entry, "it is not of declutr")
            continue
        try:
            with _unused(entry.path) as free:
                aside = _set_aside(entry.path) if free else None
            if aside is not None and aside.is_dir():
                shutil.rmtree(aside)
            elif aside is not None:
                aside.unlink()
            yield Removal(entry, None if free else "a running process uses it")
        except FileNotFoundError:
            yield Removal(entry, None)  # Another process removed it.
        except OSError as error:
            yield Removal(entry, f"it cannot be removed: {error.strerror or error}")


def remove_free_locks(cache: Path) -> None:
    """Remove the lock files that no process holds; they are made again when they are needed."""
    for folder in (cache, *(cache / name for name in _TABLES)):
        for path in sorted(folder.glob("*.lock")):
            if _LOCK.fullmatch(path.name) and not path.is_symlink():
                with suppress(OSError), lock_taken(path) as free:
                    if free:
                        path.unlink(missing_ok=True)


def _kind(path: Path) -> str | None:
    name, in_tables = path.name, path.parent.name in _TABLES
    if path.is_symlink():
        return None
    if path.is_file():
        if _TEMPORARY.fullmatch(name):
            return "unfinished"
        return {"digests.json": "digests", "kernels.json": "timings"}.get(name)
    if not path.is_dir() or not _is_of_ours(path):
        return None
    begun = name.startswith("unfinished-") if in_tables else _PARTIAL.fullmatch(name)
    if begun or name.endswith(_REMOVED):
        return "unfinished"
    if in_tables:
        return _TABLES[path.parent.name] if _TABLE.fullmatch(name) else None
    return "corpus" if _STORE.fullmatch(name) else None


def _is_of_ours(folder: Path) -> bool:
    names = {file.name.removesuffix(".tmp") for file in folder.iterdir()}
    return names <= _FILES


def _size_and_use(path: Path) -> tuple[int, float]:
    size, used = 0, 0.0
    for file in [path, *path.iterdir()] if path.is_dir() else [path]:
        stat = file.lstat()
        size += getattr(stat, "st_blocks", 0) * 512 or stat.st_size
        # Here folders and their descriptions are read, so that their access times say nothing.
        read_here = file.is_dir() or file.name == "meta.json"
        used = max(used, stat.st_mtime, 0.0 if read_here else stat.st_atime)
    return size, used


def _about(path: Path, kind: str | None) -> str:
    if kind is None:
        return "not of declutr; it is left alone"
    if kind not in ("corpus", "static-table"):
        return KINDS[kind]
    try:
        meta = json.loads((path / "meta.json").read_text())
        files = [str(file) for file in meta["files"]]
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        what = "tokens" if kind == "corpus" else "vectors"
        count = meta["num_tokens" if kind == "corpus" else "vectors"]
        return f"{files[0]}{more}, {int(count):,} {what}"
    except (OSError, ValueError, LookupError, TypeError):
        return f"{KINDS[kind]}, damaged: it is made again when it is needed"


@contextmanager
def _unused(path: Path) -> Iterator[bool]:
    """Yield whether no process writes or reads an entry, and keep others out meanwhile."""
    of = path.name.split(".partial")[0].removesuffix(_REMOVED)
    lock = "digests.lock" if path.name == "digests.json" else f"{of}.lock"
    temporary = path.name.startswith("unfinished-") or path.name.endswith(".tmp")
    with ExitStack() as stack:
        if temporary:  # Their writers lock something that their names do not tell.
            yield not _is_fresh(path)
            return
        if not stack.enter_context(lock_taken(path.with_name(lock))):
            yield False
            return
        marks = [file for name in ("meta.json", "shape.json") if (file := path / name).is_file()]
        yield all(stack.enter_context(held_alone(mark)) for mark in marks)


def _set_aside(path: Path) -> Path:
    """Rename an entry, so that no process finds a part of it while it is removed."""
    if path.is_file() or path.name.endswith(_REMOVED):
        return path
    aside = path.with_name(f"{path.name.split('.partial')[0]}{_REMOVED}")
    if aside.exists():
        shutil.rmtree(aside)
    os.rename(path, aside)
    return aside


@contextmanager
def lock_taken(path: Path) -> Iterator[bool]:
    """Yield whether a lock file could be taken at once."""
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _is_fresh(path: Path) -> bool:
    files = [path, *path.iterdir()] if path.is_dir() else [path]
    return time.time() - max(file.stat().st_mtime for file in files) < _FRESH
