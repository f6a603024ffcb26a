"""Atomic writing of files, and detection of damaged files on reading.

Disks, memory and copies flip bits, rarely and silently. Files of this package have a 64-bit
checksum (XXH3, against damage, not forgery) for each MiB, so that a part of a large file can be
verified without reading all of it.
"""

import errno
import json
import os
import pickle
import re
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock
from xxhash import xxh3_64_hexdigest

UNFINISHED = ".tmp"
"""The suffix of a temporary file that is being written, beside the final file."""

BLOCK = 1 << 20
"""The number of bytes that share a checksum."""

# A full disk, a quota that is used up, and a limit of the size of files.
_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_SEEKING = threading.Lock()
_CUT_OFF = re.compile(r"\d+ requested and \d+ written")
_DIGITS = 16  # of a checksum in hexadecimal
_DIRECTORY = 0x10  # the attribute that marks a folder in a zip archive
_EARLIER_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""How files of `torch.save` began before release 1.6: with a pickled number."""


Appearance = tuple[int, int, int, int]
"""The size, `mtime_ns`, `ctime_ns` and inode of a file."""


def appearance(file: Path | str | int) -> Appearance:
    """Return the size, times and inode of a file, which tell changes without reading it.

    # Parameters

    file : its path, or the descriptor of an open file, whose path may lead to another one by now.
    """
    stat = os.stat(file)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


@contextmanager
def locked(file: Path, timeout: float = -1) -> Iterator[None]:
    """Hold a lock of several processes, or go on without where none can be had (in time)."""
    lock = FileLock(file)
    with suppress(OSError, NotImplementedError):
        file.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=timeout)
    try:
        yield
    finally:
        lock.release()


def json_object(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one if there is none that can be read."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_whole(
    path: str | os.PathLike,
    content: bytes | str | Callable[[BinaryIO], object],
    shared: bool = False,
) -> None:
    """Write a file atomically: it appears under its name only when it is complete on disk.

    # Parameters

    path : the path of the file, in an existing folder.
    content : bytes, text to be written in UTF-8 (lone surrogates are escaped), or a function that
        writes to the binary file it is given. If the function raises, nothing stays behind.
    shared : whether other processes may write this file at the same time; the last one wins.
    """
    path = Path(path)
    process = f".{os.getpid()}" if shared else ""
    beside = path.with_name(f"{path.name}{process}{UNFINISHED}")
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    try:
        with named_if_full(path):
            with open(beside, "wb") as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    content(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _sync_folder(path.parent)


@contextmanager
def named_if_full(path: str | os.PathLike) -> Iterator[None]:
    """Return a context in which the error of a full disk names the file or folder at a path."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if _CUT_OFF.fullmatch(str(error)):  # numpy says so of a full disk, and of other limits
            about = f"'{path}' cannot be written whole: of its numbers, {error}."
            raise OSError(f"{about} Is the disk full, or the size of files limited?") from error
        # torch fails to end a file that could not be written, and tells that alone.
        first = error if isinstance(error, OSError) else error.__context__
        if not isinstance(first, OSError) or first.errno not in _FULL or first.filename is not None:
            raise
        raise OSError(first.errno, first.strerror, str(path)) from error


def read_at(file: int, size: int, position: int) -> bytes:
    """Return at most `size` bytes at a position of an open file, which threads may share.

    # Parameters

    file : its descriptor.
    size : the number of bytes; there are fewer at the end of the file, and above 2 GiB.
    position : where they begin.
    """
    if hasattr(os, "pread"):
        return os.pread(file, size, position)
    with _SEEKING:  # Windows has no such call.
        os.lseek(file, position, os.SEEK_SET)
        return os.read(file, size)


def _sync_folder(folder: Path) -> None:
    """Write the file names in a folder to disk where the system supports it."""
    if os.name == "nt":  # Windows cannot open folders.
        return
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:  # The folder may be writable but not readable.
        return
    try:
        os.fsync(opened)
    except OSError:  # Some file systems do not support it.
        pass
    finally:
        os.close(opened)


def use_umask(paths: Iterable[Path]) -> None:
    """Set the permissions of files and folders to those that `open` and `mkdir` would have given.

    Temporary folders and the files that safetensors writes are accessible only to their owner.
    """
    umask = os.umask(0)
    os.umask(umask)
    for path in paths:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


class DamagedFile(OSError):
    """Raised if the bytes of a file are not those that were written."""


def checksums_of(data: bytes) -> str:
    """Return the concatenated checksums of the blocks of some bytes, in hexadecimal."""
    starts = range(0, len(data), BLOCK)
    return "".join(xxh3_64_hexdigest(data[start : start + BLOCK]) for start in starts)


def file_checksums(path: str | os.PathLike) -> str:
    """Return the concatenated checksums of the blocks of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return "".join(xxh3_64_hexdigest(block) for block in iter(lambda: file.read(BLOCK), b""))


def json_checksum(content: Any) -> str:
    """Return a checksum of a JSON value that does not depend on the order of keys."""
    # Reading it back makes all keys strings and tuples lists, as they will be when it is verified.
    content = json.loads(json.dumps(content))
    return xxh3_64_hexdigest(json.dumps(content, sort_keys=True).encode())


class CheckedFile:
    """A file with recorded checksums, by which each block is verified at most once.

    # Parameters

    path : the path of the file.
    checksums : the result of `checksums_of` or `file_checksums` when the file was written.
    begin : the byte at which the first block begins.

    # Raises

    `DamagedFile` : if the number of checksums is not that of the blocks.
    """

    def __init__(self, path: str | os.PathLike, checksums: str, begin: int = 0) -> None:
        self.path = Path(path)
        self._checksums, self._begin = checksums, begin
        blocks = -(-max(0, self.path.stat().st_size - begin) // BLOCK)
        if len(checksums) != blocks * _DIGITS:
            raise DamagedFile(
                f"'{path}' is damaged: it has {blocks} blocks, expected "
                f"{len(checksums) / _DIGITS:g}."
            )
        self._sound = np.zeros(blocks, dtype=bool)

    def require(self, start: int, end: int) -> None:
        """Raise `DamagedFile` if bytes `[start, end)`, counted from `begin`, are not as written."""
        first, last = start // BLOCK, -(-end // BLOCK)
        if last - first == 1 and self._sound[first]:  # a fast path for the most frequent case
            return
        self._require_blocks(range(first, last))

    def require_each(self, starts: np.ndarray, size: int) -> None:
        """Raise `DamagedFile` unless all of many ranges are as they were written.

        # Parameters

        starts : the first bytes `(m,)` of the ranges, counted from `begin`.
        size : the number of bytes in each range.
        """
        # With these offsets from its start, a range touches every block that it overlaps.
        steps = range(0, size + BLOCK, BLOCK)
        blocks = [np.minimum(starts + size - 1, starts + step) // BLOCK for step in steps]
        self._require_blocks(np.unique(np.concatenate(blocks)).tolist())

    def require_all(self) -> None:
        """Raise `DamagedFile` unless the whole file after `begin` is as it was written."""
        self._require_blocks(range(len(self._sound)))

    def _require_blocks(self, blocks: Iterable[int]) -> None:
        missing = [block for block in blocks if not self._sound[block]]
        if not missing:
            return
        with open(self.path, "rb", buffering=0) as file:
            for block in missing:
                start = self._begin + block * BLOCK
                found = xxh3_64_hexdigest(read_at(file.fileno(), BLOCK, start))
                if found != self._checksums[block * _DIGITS : (block + 1) * _DIGITS]:
                    raise DamagedFile(
                        f"'{self.path}' is damaged: of the {BLOCK:,} bytes after byte "
                        f"{start:,}, some are not those that were written."
                    )
                self._sound[block] = True


def damage_of(file: str | Path) -> str | None:
    """Return a description of the damage to a file of `torch.save`, or `None` if it is sound.

    Torch verifies no CRC-32 of an entry on loading; this verifies all, in half the time of loading.
    Of one that was written without CRCs (`torch.serialization.set_crc32_options(False)`), or in the
    format before torch 1.6, which has none, only the structure is verified.
    """
    import torch

    zipped = not _is_of_earlier_torch(file)
    damage = damage_of_records(file) if zipped else None
    if damage is not None:
        return damage
    try:  # torch verifies parts of the zip directory that Python ignores.
        torch.load(file, map_location="cpu", mmap=zipped)
    except pickle.UnpicklingError as error:
        # With checksums, the bytes are right, but hold objects that torch does not load by default.
        return None if zipped else _cut_off(error)
    except Exception as error:  # A malformed file can raise nearly any error.
        return _cut_off(error)
    return None


def _is_of_earlier_torch(file: str | Path) -> bool:
    try:
        with open(file, "rb") as opened:
            return opened.read(len(_EARLIER_TORCH)) == _EARLIER_TORCH
    except OSError:  # `damage_of_records` describes it
        return False


def damage_of_records(file: str | Path) -> str | None:
    """Return a description of the damage to the entries of any zip archive, or `None` if sound."""
    try:
        with zipfile.ZipFile(file) as opened:
            entries = opened.infolist()
            # For an entry marked as a folder, torch returns tensors of uninitialised memory.
            strange = [e.filename for e in entries if e.external_attr & _DIRECTORY or e.is_dir()]
            wrong = strange[0] if strange else None
            if wrong is None and any(entry.CRC for entry in entries):
                wrong = opened.testzip()
    except OSError as error:  # `strerror` lacks the name of the file, which the caller adds.
        return f"it cannot be read ({error.strerror or error})"
    except Exception as error:  # A malformed file can raise nearly any error.
        return _cut_off(error)
    return None if wrong is None else f"its record {wrong} is not what was written"


def _cut_off(error: Exception) -> str:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return f"it is cut off or overwritten ({reason})"
