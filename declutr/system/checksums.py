"""Checksums of files that this package writes, so that damage is noticed where they are read.

Disks, memory and copies flip bits, rarely and without a word. A file has a checksum (XXH3, 64 bits)
for each MiB of it, so that a part of a large file can be checked without reading all of it. XXH3
finds damage, not forgery: whoever can change a file can change its checksums.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_64

BLOCK = 1 << 20
"""Bytes that share a checksum."""

_DIGITS = 16  # hexadecimal ones of a checksum


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
        """Of all blocks so far, one after the other, hexadecimal."""
        return "".join([*self._whole, *([self._last.hexdigest()] if self._filled else [])])


def file_checksums(path: str | os.PathLike) -> str:
    """The checksums of a file as it is now."""
    hasher = BlockHasher()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            hasher.update(block)
    return hasher.checksums


def json_checksum(content: Any) -> str:
    """A checksum of plain JSON values as they are read back, whatever the order of keys."""
    content = json.loads(json.dumps(content))  # keys are strings, then
    return xxh3_64(json.dumps(content, sort_keys=True).encode()).hexdigest()


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
        """The same for many parts `[start, start + size)`."""
        blocks = [np.minimum(starts + size - 1, starts + at) // BLOCK for at in _steps(size)]
        self._require_blocks(np.unique(np.concatenate(blocks)).tolist())

    def require_all(self) -> None:
        """The same for the whole file after `begin`."""
        self._require_blocks(range(len(self._sound)))

    def _require_blocks(self, blocks: Iterable[int]) -> None:
        missing = [block for block in blocks if not self._sound[block]]
        if not missing:
            return
        with open(self.path, "rb", buffering=0) as file:
            for block in missing:
                found = BlockHasher()
                found.update(os.pread(file.fileno(), BLOCK, self._begin + block * BLOCK))
                if found.checksums != self._checksums[block * _DIGITS : (block + 1) * _DIGITS]:
                    raise DamagedFile(
                        f"'{self.path}' is damaged: of the {BLOCK:,} bytes after byte "
                        f"{self._begin + block * BLOCK:,}, some are not those that were written."
                    )
                self._sound[block] = True


def _steps(size: int) -> range:
    """Offsets into a part that touch every block in which it may lie."""
    return range(0, size + BLOCK, BLOCK)
