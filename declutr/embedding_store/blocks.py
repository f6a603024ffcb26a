"""Blocks of embeddings: npy files that are written once, with the key and a checksum in each row.

A block is an array of records: `key`, 16 bytes; `vector`, d numbers in float32 or float16; `check`,
the XXH3 checksum of the two. So each row tells by itself whether it is sound and whose it is, and
an index of the keys can be made again from the blocks.
"""

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest

from declutr.system.files import UNFINISHED, write_whole

KEY_BYTES = 16
"""The number of bytes of a key."""
DTYPES = ("float32", "float16")
"""The dtypes of embeddings in a block."""
_CHECK_BYTES = 8
_FRESH = 3600.0  # seconds after its last change for which a temporary file may still be written


class StoreError(OSError):
    """An error of stored embeddings that cannot be read or written."""


def write_block(folder: Path, keys: Sequence[bytes], vectors: np.ndarray) -> str:
    """Write a new block, whole or not at all, and return the name of its file.

    Names are in the order of time, and no two processes choose the same one.

    # Parameters

    folder : the folder to write to.
    keys : n keys of 16 bytes.
    vectors : the embeddings `(n, d)`, in float32 or float16.
    """
    rows = np.zeros(len(keys), _record(vectors.dtype, vectors.shape[1]))
    rows["key"] = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY_BYTES)
    rows["vector"] = vectors
    rows["check"] = _checks(rows)
    name = f"{time.time_ns():020d}-{secrets.token_hex(4)}.npy"
    write_whole(folder / name, lambda file: np.lib.format.write_array(file, rows))
    return name


def open_block(path: Path) -> np.ndarray:
    """Return the rows `(n,)` of a block as records, mapped from disk.

    # Raises

    `StoreError` : the file is gone, cut off, or no block.
    """
    try:
        rows = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise StoreError(f"'{path}' is not a whole block of embeddings: {error}") from error
    if rows.ndim != 1 or rows.dtype.names != ("key", "vector", "check"):
        raise StoreError(f"'{path}' is not a block of embeddings, but an array {rows.shape}.")
    return rows


def sound_rows(rows: np.ndarray, keys: Sequence[bytes] | None = None) -> np.ndarray:
    """Return which rows `(n,)` are as they were written, and are those of the keys, if given."""
    sound = rows["check"] == _checks(rows)
    if keys is not None:
        expected = np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY_BYTES)
        sound &= (rows["key"] == expected).all(axis=1)
    return sound


def size_on_disk(folder: Path) -> int:
    """Return the bytes of the files in a folder, some of which other processes may remove."""
    total = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def remove_unfinished(folder: Path) -> None:
    """Remove the files that killed processes left half written."""
    for file in folder.glob(f"*{UNFINISHED}"):
        with suppress(FileNotFoundError):
            if time.time() - file.stat().st_mtime > _FRESH:
                file.unlink()


def _record(dtype: np.dtype, width: int) -> np.dtype:
    vector = ("vector", dtype.newbyteorder("<"), (width,))
    return np.dtype([("key", "u1", (KEY_BYTES,)), vector, ("check", "<u8")])


def _checks(rows: np.ndarray) -> np.ndarray:
    data, size = memoryview(np.ascontiguousarray(rows).tobytes()), rows.dtype.itemsize
    starts = range(0, len(data), size)
    checks = (xxh3_64_intdigest(data[at : at + size - _CHECK_BYTES]) for at in starts)
    return np.fromiter(checks, np.uint64, len(rows))
