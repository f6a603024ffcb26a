"""Files of shards in the formats npy, parquet and JSON lines, all without loss of precision.

A file appears under its name only when all of it is on the disk.
"""

import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from declutr.system.files import CheckedFile, DamagedFile, write_whole

FORMATS = ("npy", "parquet", "jsonl")
DTYPES = ("float32", "float16")

# The significant digits that represent every number of a dtype exactly.
_DIGITS = {"float32": 9, "float16": 5}
_NEEDS_PYARROW = (
    "Parquet needs pyarrow, which is not installed: pip install 'declutr[parquet]'. The formats "
    "npy and jsonl do without."
)


def require(format: str) -> None:
    """Raise if files of a format cannot be written because a package is missing.

    # Raises

    `ImportError` : the package is missing; the message names it.
    """
    if format == "parquet":
        _pyarrow()


def write_shard(path: Path, format: str, start: int, vectors: np.ndarray) -> None:
    """Write a shard to a file, whole or not at all, even if the power fails.

    # Parameters

    path : the file.
    format : one of `FORMATS`.
    start : the number of the first row, from which parquet and JSON lines number their rows.
    vectors : the embeddings `(n, d)`, with a dtype of `DTYPES`. A row that is not finite becomes
        `null` in JSON, which has no such numbers.
    """
    write_whole(path, lambda file: _WRITERS[format](file, start, vectors))


def read_shard(path: Path, format: str, dtype: str, dimension: int) -> np.ndarray:
    """Return the embeddings `(n, d)` of a shard; an npy file is mapped into memory.

    # Parameters

    path : the file.
    format : one of `FORMATS`.
    dtype : one of `DTYPES`; an npy file keeps its own.
    dimension : the width d.
    """
    return _READERS[format](path, np.dtype(dtype), dimension)


def checked_shard(
    path: Path, format: str, dtype: str, dimension: int, rows: int, checksums: str | None
) -> CheckedFile | None:
    """Return the shard's file with its checksums; `None` if release 1.5 wrote it without any.

    Without checksums, the header of an npy file is compared with the shape and dtype.

    # Parameters

    path : the file.
    format, dtype, dimension : as for `read_shard`.
    rows : the number of rows.
    checksums : the checksums of the file; `None` if there are none.

    # Raises

    `DamagedFile` : the file has another size or another header.
    """
    if checksums is not None:
        return CheckedFile(path, checksums)
    if format == "npy":
        try:
            found = _read_npy(path, np.dtype(dtype), dimension)
        except ValueError as error:
            raise DamagedFile(f"'{path}' is damaged: {error}") from error
        if found.shape != (rows, dimension) or found.dtype != np.dtype(dtype):
            raise DamagedFile(
                f"'{path}' holds an array {found.shape} of {found.dtype}, expected "
                f"{(rows, dimension)} of {dtype}."
            )
    return None


def _write_npy(file: BinaryIO, start: int, vectors: np.ndarray) -> None:
    np.save(file, vectors, allow_pickle=False)


def _read_npy(path: Path, dtype: np.dtype, dimension: int) -> np.ndarray:
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _write_parquet(file: BinaryIO, start: int, vectors: np.ndarray) -> None:
    pyarrow, parquet = _pyarrow()
    values = pyarrow.array(vectors.reshape(-1))
    table = pyarrow.table(
        {
            "row": pyarrow.array(np.arange(start, start + len(vectors), dtype=np.int64)),
            "embedding": pyarrow.FixedSizeListArray.from_arrays(values, vectors.shape[1]),
        }
    )
    # The numbers of embeddings hardly repeat, so dictionary encoding would only cost time.
    parquet.write_table(table, file, use_dictionary=False)


def _read_parquet(path: Path, dtype: np.dtype, dimension: int) -> np.ndarray:
    _, parquet = _pyarrow()
    column = parquet.read_table(path, columns=["embedding"])["embedding"]
    chunks = [chunk.flatten().to_numpy().reshape(-1, dimension) for chunk in column.chunks]
    return np.concatenate([np.empty((0, dimension), dtype), *chunks])


def _write_jsonl(file: BinaryIO, start: int, vectors: np.ndarray) -> None:
    number = f"%.{_DIGITS[vectors.dtype.name]}g"
    template = '{"row": %d, "embedding": [' + ", ".join([number] * vectors.shape[1]) + "]}\n"
    finite = np.isfinite(vectors).all(axis=1).tolist()
    for row, vector in enumerate(vectors, start=start):
        if finite[row - start]:
            line = template % (row, *vector.tolist())
        else:
            line = f'{{"row": {row}, "embedding": null}}\n'
        file.write(line.encode("ascii"))


def _read_jsonl(path: Path, dtype: np.dtype, dimension: int) -> np.ndarray:
    vectors = []
    with open(path, encoding="ascii") as lines:
        for line in lines:
            # As an integer, -0 would lose its sign.
            embedding = json.loads(line, parse_int=float)["embedding"]
            vectors.append(np.array(embedding or [np.nan] * dimension, dtype))
    return np.array(vectors, dtype).reshape(len(vectors), dimension)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(_NEEDS_PYARROW) from error
    return pyarrow, pyarrow.parquet


_WRITERS = {"npy": _write_npy, "parquet": _write_parquet, "jsonl": _write_jsonl}
_READERS = {"npy": _read_npy, "parquet": _read_parquet, "jsonl": _read_jsonl}
