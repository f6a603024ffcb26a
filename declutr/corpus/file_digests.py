"""Digests of files, kept, so that each file is read for one once and not at every start.

The index is a file `digests.json` in the cache folder: what a file looked like (size, times,
inode) when it was read, and its SHA-256 then, with a checksum of all this. A file that looks
otherwise is read again, and so is one of which the record is damaged.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock
from tqdm.auto import tqdm

from declutr.corpus import SourceError
from declutr.system.files import json_checksum, write_whole

logger = logging.getLogger(__name__)

INDEX_NAME = "digests.json"
_MOST = 1_000_000  # files remembered
_BLOCK = 1 << 22
_SHOWN_FROM = 10**9  # bytes that take long enough for a progress bar
_CLOCK_TICK = 0.05  # seconds; two changes within one tick of a file system leave equal times

# What a file looks like from outside: size, mtime_ns, ctime_ns, inode.
Appearance = tuple[int, int, int, int]


def file_digests(
    files: Sequence[Path], cache_dir: Path, progress: bool = True
) -> dict[Path, tuple[str, Appearance]]:
    """The SHA-256 of each file (hexadecimal), and its appearance when it was taken.

    Of several processes that ask at once, one reads the files and the others wait for its index.
    An index that cannot be read is begun anew; one that cannot be written is done without.

    # Raises

    `SourceError` : a file changed while it was being read.
    """
    found = _known(files, cache_dir)
    if len(found) < len(set(files)):
        # A lock for these files, so that reading others need not wait for them.
        names = json.dumps(sorted(str(file.resolve()) for file in set(files)))
        name = f"digests-{hashlib.sha256(names.encode()).hexdigest()[:16]}.lock"
        with _locked(cache_dir / name):
            found |= _known(files, cache_dir)
            missing = [file for file in dict.fromkeys(files) if file not in found]
            if missing:
                read = _read(missing, progress)
                _remember(read, cache_dir)
                found |= read
    return found


def appearance(file: Path) -> Appearance:
    """What tells whether a file has changed, without reading it."""
    stat = file.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def check_unchanged(digests: dict[Path, tuple[str, Appearance]]) -> None:
    """See that files still hold what they held when these digests were taken.

    A file that only looks otherwise (it was touched, or moved and put back) is read again.

    # Raises

    `SourceError` : one does not, or is gone.
    """
    for file, (digest, before) in digests.items():
        try:
            now = appearance(file)
            same = now == before or (now[0] == before[0] and _digest(file)[0] == digest)
        except OSError as error:
            raise _changed(file) from error
        if not same:
            raise _changed(file)
        digests[file] = digest, now


def _changed(file: Path) -> SourceError:
    return SourceError(
        f"'{file}' changed while it was being read. Expected files that nothing writes to: wait "
        "until it is finished (or stop what writes it), then start again."
    )


def _known(files: Sequence[Path], cache_dir: Path) -> dict[Path, tuple[str, Appearance]]:
    """Digests in the index of files that look as they did."""
    index = _index(cache_dir)
    found = {}
    for file in files:
        now = appearance(file)
        entry = index.get(str(file.resolve()))
        # Version 1.5 wrote no checksum.
        if not isinstance(entry, list) or entry[1:2] != [list(now)]:
            continue
        if entry[2:] in ([], [json_checksum(entry[:2])]):
            found[file] = str(entry[0]), now
    return found


def _index(cache_dir: Path) -> dict[str, list]:
    try:
        index = json.loads((cache_dir / INDEX_NAME).read_text())
    except (OSError, ValueError):
        return {}
    return index if isinstance(index, dict) else {}


def _remember(digests: dict[Path, tuple[str, Appearance]], cache_dir: Path) -> None:
    with _locked(cache_dir / "digests.lock"):
        index = _index(cache_dir)
        for file, entry in digests.items():
            index.pop(str(file.resolve()), None)  # the newest stand at the end
            index[str(file.resolve())] = [*entry, json_checksum(entry)]
        kept = dict(list(index.items())[-_MOST:])
        try:
            write_whole(cache_dir / INDEX_NAME, json.dumps(kept), shared=True)
        except OSError as error:
            logger.info("The digests of the corpus are not kept for the next start: %s", error)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = FileLock(path)
    # A cache may be one that can only be read, or not be locked.
    with suppress(OSError, NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _read(files: Sequence[Path], progress: bool) -> dict[Path, tuple[str, Appearance]]:
    total = sum(file.stat().st_size for file in files)
    bar = tqdm(
        total=total,
        unit="B",
        unit_scale=True,
        desc="looking for changes in the corpus",
        disable=not progress or total < _SHOWN_FROM,
    )
    with bar:
        return {file: _digest(file, bar) for file in files}


def _digest(file: Path, bar: tqdm | None = None) -> tuple[str, Appearance]:
    before = appearance(file)
    # A change right after this would leave the same times if the last one was just now.
    age = time.time() - max(before[1], before[2]) / 1e9
    if 0 <= age < _CLOCK_TICK:
        time.sleep(_CLOCK_TICK - age)
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            if bar is not None:
                bar.update(len(block))
    if appearance(file) != before:
        raise _changed(file)
    return digest.hexdigest(), before
