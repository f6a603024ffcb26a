"""`StoredEmbeddings`: a folder of embeddings as one array that stays on the disk."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np

from declutr.inference.bulk.manifest import MANIFEST, EmbeddingFolderError, Manifest
from declutr.inference.bulk.shard_files import checked_shard, read_shard
from declutr.system.files import CheckedFile, DamagedFile

# Shards held open: npy files are only mapped, others are read whole.
_OPEN = {"npy": 64, "parquet": 2, "jsonl": 2}


@contextmanager
def _told() -> Iterator[None]:
    """Say of damage what to do about it."""
    try:
        yield
    except DamagedFile as error:
        raise EmbeddingFolderError(
            f"{error} Repeat the command that wrote it, which makes this shard again."
        ) from error


class StoredEmbeddings:
    """The embeddings `(n, d)` that `declutr embed` wrote, row for row those of its input.

        embeddings = StoredEmbeddings("out")
        embeddings[7]          # (d,)
        embeddings[[3, 1, 3]]  # (3, d)
        embeddings[10:20]      # (10, d)
        embeddings[:]          # all of them, in memory
        for start, block in embeddings.blocks():
            ...                # rows start to start + len(block)

    Memory is flat: npy shards are mapped, of parquet and JSON lines two shards are kept. Rows whose
    embedding was not finite are NaN. What is read is compared with the checksums in the manifest,
    of npy shards each MiB when something of it is first read; version 1.5 wrote none.

    # Parameters

    folder : with a `manifest.json`.

    # Raises

    `EmbeddingFolderError` : there are none, not all of them yet, a shard is missing, or, where it
        is read, damaged.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        manifest = Manifest.load(self.folder)
        if manifest is None:
            raise EmbeddingFolderError(
                f"Found no {MANIFEST} in '{folder}', expected a folder that `declutr embed` wrote."
            )
        if not manifest.finished:
            raise EmbeddingFolderError(
                f"'{folder}' has {manifest.rows:,} rows so far and is not finished: repeat the "
                "command that writes it, which goes on where it stopped."
            )
        self.manifest = manifest
        self._shards = manifest.in_order()
        for shard in self._shards:
            path = self.folder / shard.file
            if not path.is_file() or path.stat().st_size != shard.bytes:
                raise EmbeddingFolderError(
                    f"'{path}' is gone or was changed: repeat the command that wrote '{folder}', "
                    "which makes it again."
                )
        self._starts = np.cumsum([0, *(shard.rows for shard in self._shards)])  # (shards + 1,)
        self._shard = lru_cache(_OPEN[manifest.settings["format"]])(self._read)
        self._checks: dict[int, CheckedFile | None] = {}

    @property
    def dimension(self) -> int:
        """The width d of the embeddings."""
        return self.manifest.settings["dimension"]

    @property
    def shape(self) -> tuple[int, int]:
        """`(n, d)`."""
        return len(self), self.dimension

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        """Rows by number, from 0: `(d,)` for one, else `(k, d)` in the order asked for, float32.

        Takes what numpy takes for one axis: a number, a slice, numbers, or a mask `(n,)`.

        # Raises

        `IndexError` : there is no such row.
        """
        if isinstance(rows, slice):
            numbers = np.arange(*rows.indices(len(self)))
        elif np.ndim(rows) == 0:
            return self._gathered(self._checked(np.array([operator.index(rows)])))[0]  # type: ignore[arg-type]
        else:
            numbers = self._checked(np.asarray(rows))
        return self._gathered(numbers)

    def blocks(self, rows: int = 16_384) -> Iterator[tuple[int, np.ndarray]]:
        """All embeddings in order, `rows` or fewer at a time: the first row's number, and `(k, d)`
        float32. Blocks of npy shards are views of the file and may not be written to.
        """
        if rows < 1:
            raise ValueError(f"Expected blocks of at least 1 row, got {rows}.")
        for number, start in enumerate(self._starts[:-1].tolist()):
            vectors = self._shard(number)
            for first in range(0, len(vectors), rows):
                block = vectors[first : first + rows]
                self._require(number, np.array([first]), len(block))
                yield start + first, block.astype(np.float32, copy=False)

    def _checked(self, numbers: np.ndarray) -> np.ndarray:
        """Row numbers `(k,)`, none of them negative."""
        if numbers.dtype == bool:
            if numbers.shape != (len(self),):
                raise IndexError(f"Expected a mask {(len(self),)}, got {numbers.shape}.")
            return np.flatnonzero(numbers)
        if not numbers.size:
            numbers = numbers.astype(np.int64)
        if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
            raise IndexError(
                f"Expected row numbers (k,), got {numbers.dtype} of shape {numbers.shape}."
            )
        outside = (numbers < -len(self)) | (numbers >= len(self))
        if outside.any():
            raise IndexError(f"There is no row {numbers[outside][0]} among {len(self):,}.")
        return np.where(numbers < 0, numbers + len(self), numbers)

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        """Rows `(k, d)`; each shard is opened once."""
        found = np.empty((len(numbers), self.dimension), np.float32)
        shards = np.searchsorted(self._starts, numbers, side="right") - 1  # (k,)
        for shard in np.unique(shards).tolist():
            places = np.flatnonzero(shards == shard)
            vectors, rows = self._shard(shard), numbers[places] - self._starts[shard]
            self._require(shard, rows)
            found[places] = vectors[rows]
        return found

    @_told()
    def _require(self, number: int, rows: np.ndarray, count: int = 1) -> None:
        """See that `count` rows from each of `rows` on are sound, where they are read now."""
        checked = self._checks[number]
        if checked is None or self.manifest.settings["format"] != "npy":
            return
        shard = self._shards[number]
        size = self.dimension * np.dtype(self.manifest.settings["dtype"]).itemsize
        checked.require_each(shard.bytes - shard.rows * size + rows * size, count * size)

    @_told()
    def _read(self, number: int) -> np.ndarray:
        shard = self._shards[number]
        path = self.folder / shard.file
        format = self.manifest.settings["format"]
        layout = format, self.manifest.settings["dtype"], self.dimension
        if number not in self._checks:
            self._checks[number] = checked_shard(path, *layout, shard.rows, shard.checksums)
        checked = self._checks[number]
        if checked is not None and format == "npy":
            checked.require(0, 1)  # its header
        elif checked is not None:
            checked.require_all()
        vectors = read_shard(path, *layout)
        if vectors.shape != (shard.rows, self.dimension):
            raise EmbeddingFolderError(
                f"'{path}' holds an array {vectors.shape}, expected {(shard.rows, self.dimension)}."
            )
        return vectors
