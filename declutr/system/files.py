"""Files that are written whole or not at all, and noticed to be damaged where they are read.

Disks, memory and copies flip bits, rarely and without a word. A file of ours has a checksum (XXH3,
64 bits) for each MiB of it, so that a part of a large file can be checked without reading all of
it. XXH3 finds damage, not forgery: whoever can change a file can change its checksums.
"""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from xxhash import xxh3_64, xxh3_64_hexdigest

UNFINISHED = ".tmp"
"""The suffix of what is being written, beside the file that it becomes."""

CACHE_VARIABLE = "DECLUTR_CACHE"

BLOCK = 1 << 20
"""Bytes that share a checksum."""

_DIGITS = 16  # hexadecimal ones of a checksum
_DIRECTORY = 0x10  # among the attributes of a record of a zip archive


def default_cache_dir() -> Path:
    """Return the folder of what can be made again: `$DECLUTR_CACHE`, or `~/.cache/declutr`."""
    folder = os.environ.get(CACHE_VARIABLE)
    return Path(folder).expanduser() if folder else Path.home() / ".cache" / "declutr"


def write_whole(
    path: str | os.PathLike,
    content: bytes | str | Callable[[BinaryIO], object],
    shared: bool = False,
) -> None:
    """Write a file, which appears under its name when all of it is on the disk.

    # Parameters

    path : of the file, in a folder that is there.
    content : bytes, text (UTF-8; a lone surrogate becomes an escape), or a function that writes
        into the file it is given. If that raises, nothing stays behind; what a killed process
        leaves is overwritten by the next one.
    shared : other processes may write this file at the same time; the last one wins.
    """
    path = Path(path)
    beside = path.with_name(
        f"{path.name}.{os.getpid()}{UNFINISHED}" if shared else path.name + UNFINISHED
    )
    if isinstance(content, str):
        content = content.encode("utf-8", "backslashreplace")
    try:
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


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can."""
    if os.name == "nt":  # cannot open folders
        return
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be written to but not listed
        return
    try:
        os.fsync(opened)
    except OSError:  # a file system without it
        pass
    finally:
        os.close(opened)


def use_umask(paths: Iterable[Path]) -> None:
    """Give files and folders the modes that `open` and `mkdir` would have given them.

    Temporary folders, and files that safetensors writes, are closed to all but their owner.
    """
    umask = os.umask(0)
    os.umask(umask)
    for path in paths:
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


class DamagedFile(OSError):
    """A file whose bytes are not those that were written."""


class BlockHasher:
    """The checksums of what passes by, in pieces of any size."""

    def __init__(self) -> None:
        self._whole: list[str] = []
        self._last, self._filled = xxh3_64(), 0

    def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes."""
        while len(data):
            part = data[: BLOCK - self._filled]
            self._last.update(part)
            self._filled += len(part)
            data = data[len(part) :]
            if self._filled == BLOCK:
                self._whole.append(self._last.hexdigest())
                self._last, self._filled = xxh3_64(), 0

    @property
    def checksums(self) -> str:
        """The checksums of all blocks so far, one after the other, hexadecimal."""
        return "".join([*self._whole, *([self._last.hexdigest()] if self._filled else [])])


def file_checksums(path: str | os.PathLike) -> str:
    """Return the checksums of a file as it is now."""
    with open(path, "rb") as file:
        return "".join(xxh3_64_hexdigest(block) for block in iter(lambda: file.read(BLOCK), b""))


def json_checksum(content: Any) -> str:
    """Return a checksum of plain JSON values as they are read back, whatever the order of keys."""
    content = json.loads(json.dumps(content))  # keys are strings, then
    return xxh3_64_hexdigest(json.dumps(content, sort_keys=True).encode())


class CheckedFile:
    """A file with the checksums that it was written with. Each block is read for them once.

    # Parameters

    path : the file.
    checksums : what `BlockHasher` or `file_checksums` gave.
    begin : the byte at which the first block begins.

    # Raises

    `DamagedFile` : another number of blocks, or no checksums at all.
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
        """See that bytes `[start, end)`, counted from `begin`, are those that were written.

        # Raises

        `DamagedFile` : they are not.
        """
        first, last = start // BLOCK, -(-end // BLOCK)
        if last - first == 1 and self._sound[first]:  # mostly
            return
        self._require_blocks(range(first, last))

    def require_each(self, starts: np.ndarray, size: int) -> None:
        """See that each of many parts `[start, start + size)` is what was written."""
        # Offsets into a part that touch every block in which it may lie.
        steps = range(0, size + BLOCK, BLOCK)
        blocks = [np.minimum(starts + size - 1, starts + step) // BLOCK for step in steps]
        self._require_blocks(np.unique(np.concatenate(blocks)).tolist())

    def require_all(self) -> None:
        """See that the whole file after `begin` is what was written."""
        self._require_blocks(range(len(self._sound)))

    def _require_blocks(self, blocks: Iterable[int]) -> None:
        missing = [block for block in blocks if not self._sound[block]]
        if not missing:
            return
        with open(self.path, "rb", buffering=0) as file:
            for block in missing:
                start = self._begin + block * BLOCK
                found = xxh3_64_hexdigest(os.pread(file.fileno(), BLOCK, start))
                if found != self._checksums[block * _DIGITS : (block + 1) * _DIGITS]:
                    raise DamagedFile(
                        f"'{self.path}' is damaged: of the {BLOCK:,} bytes after byte "
                        f"{start:,}, some are not those that were written."
                    )
                self._sound[block] = True


def damage_of(file: str | Path) -> str | None:
    """Return what is wrong with a file of `torch.save`, in words; None if it is whole.

    torch writes a zip archive with a checksum (CRC-32) of each record, tensors and all else, and
    compares none of them when it loads. This reads the whole file and compares all, in about half
    the time that loading takes. A file in the format before torch 1.6 is called damaged: it has no
    checksums. One that was written without (`torch.serialization.set_crc32_options(False)`) has
    zeros in their place, and only its structure is looked at.
    """
    import torch

    damage = damage_of_records(file)
    if damage is not None:
        return damage
    try:  # torch compares parts of the list of records that Python does not
        torch.load(file, map_location="cpu", mmap=True)
    except pickle.UnpicklingError:
        return None  # objects that torch does not load unasked, but the bytes are right
    except Exception as error:  # a broken file can raise nearly anything
        return _cut_off(error)
    return None


def damage_of_records(file: str | Path) -> str | None:
    """Return what is wrong with the records of a zip archive; torch need not be able to load it."""
    try:
        with zipfile.ZipFile(file) as opened:
            entries = opened.infolist()
            # torch reads nothing of these, and gives what happens to lie in memory.
            strange = [e.filename for e in entries if e.external_attr & _DIRECTORY or e.is_dir()]
            wrong = strange[0] if strange else None
            if wrong is None and any(entry.CRC for entry in entries):
                wrong = opened.testzip()
    except OSError as error:  # its text repeats the name of the file
        return f"it cannot be read ({error.strerror or error})"
    except Exception as error:  # a broken file can raise nearly anything
        return _cut_off(error)
    return None if wrong is None else f"its record {wrong} is not what was written"


def _cut_off(error: Exception) -> str:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return f"it is cut off or overwritten ({reason})"
