"""The class `StoredEmbeddings`, which reads a folder of embeddings like an array on disk."""

import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from declutr.inference.bulk.manifest import MANIFEST, EmbeddingFolderError, Manifest
from declutr.inference.bulk.shard_files import checked_shard, read_shard
from declutr.system import local_path
from declutr.system.files import Appearance, CheckedFile, DamagedFile, appearance

# The number of shards held open: npy files are only mapped, others are held in memory.
_MAPPED_OPEN, _READ_OPEN = 64, 2


@contextmanager
def _told() -> Iterator[None]:
    """Turn an error about a damaged file into one that says how to repair the folder."""
    try:
        yield
    except DamagedFile as error:
        raise EmbeddingFolderError(
            f"{error} Repeat the command that wrote it, which makes this shard again."
        ) from error


class StoredEmbeddings:
    """The embeddings `(n, d)` in a folder that `declutr embed` wrote, one for each row of input.

        embeddings = StoredEmbeddings("out")
        embeddings[7]          # (d,)
        embeddings[[3, 1, 3]]  # (3, d)
        embeddings[10:20]      # (10, d)
        embeddings[:]          # all of them, in memory
        for start, block in embeddings.blocks():
            ...                # rows start to start + len(block)

    Memory does not grow with the number of rows: npy shards are mapped, and two shards of parquet
    or JSON lines are held. Rows whose embedding was not finite are NaN. What is read is compared
    with the checksums in the manifest (each MiB of an npy shard when a part of it is first read);
    release 1.5 wrote no checksums.

    # Parameters

    folder : a folder with a `manifest.json`.

    # Raises

    `EmbeddingFolderError` : there are no embeddings, the run is not finished, or a shard is missing
        or has another size; when a shard is read, that it is damaged, or that another run has
        written the folder anew since it was opened.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = local_path(folder)
        self._version = self._version_now()
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
        self._checks: dict[int, CheckedFile | None] = {}
        self._shard = self._kept_open()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_shard"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._shard = self._kept_open()  # a copy, or another process, opens shards by itself

    def _kept_open(self) -> Callable[[int], np.ndarray]:
        mapped = self.manifest.settings["format"] == "npy"
        return lru_cache(_MAPPED_OPEN if mapped else _READ_OPEN)(self._read)

    @property
    def dimension(self) -> int:
        """The width d of the embeddings."""
        return self.manifest.settings["dimension"]

    @property
    def shape(self) -> tuple[int, int]:
        """The shape `(n, d)`: the number of rows and the width of the embeddings."""
        return len(self), self.dimension

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, rows: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        """Return one embedding `(d,)`, or several `(k, d)` in the order asked for, as float32.

        # Parameters

        rows : an index as numpy takes it for one axis: a row number from 0, which may be negative,
            a slice, a sequence of row numbers, or a boolean mask `(n,)`.

        # Raises

        `IndexError` : there is no such row, or the index has another shape or dtype.
        `EmbeddingFolderError` : a shard is damaged.
        """
        if isinstance(rows, slice):
            numbers = np.arange(*rows.indices(len(self)))
        elif np.ndim(rows) == 0:
            return self._gathered(self._checked(np.array([operator.index(rows)])))[0]  # type: ignore[arg-type]
        else:
            numbers = self._checked(np.asarray(rows))
        return self._gathered(numbers)

    def blocks(self, rows: int = 16_384) -> Iterator[tuple[int, np.ndarray]]:
        """Yield all embeddings in order, in blocks, as (number of the first row, `(k, d)` float32).

        A block of an npy shard in float32 is a read-only view of the file.

        # Parameters

        rows : the largest number of rows of a block.

        # Raises

        `EmbeddingFolderError` : a shard is damaged.
        `ValueError` : `rows` is below 1.
        """
        if rows < 1:
            raise ValueError(f"Expected blocks of at least 1 row, got {rows}.")
        for number, start in enumerate(self._starts[:-1].tolist()):
            self._require_same_run()
            vectors = self._shard(number)
            for first in range(0, len(vectors), rows):
                block = vectors[first : first + rows]
                self._require(number, np.array([first]), len(block))
                yield start + first, block.astype(np.float32, copy=False)

    def _checked(self, numbers: np.ndarray) -> np.ndarray:
        """Return an index as row numbers `(k,)` from 0."""
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
        numbers = numbers.astype(np.int64)  # a small dtype does not hold sums with other rows
        return np.where(numbers < 0, numbers + len(self), numbers)

    def _gathered(self, numbers: np.ndarray) -> np.ndarray:
        """Return the embeddings `(k, d)` of row numbers `(k,)`, opening each shard once."""
        self._require_same_run()
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
        """Raise if `count` rows of an npy shard, from each of `rows` on, do not match checksums."""
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

    def _version_now(self) -> Appearance | None:
        try:
            return appearance(self.folder / MANIFEST)
        except FileNotFoundError:
            return None

    def _require_same_run(self) -> None:
        """Raise if the folder was written anew: shards have the same names then."""
        version = self._version_now()
        if version in (None, self._version):  # what is mapped stays as it was if files are gone
            return
        there, ours = Manifest.load(self.folder), self.manifest
        if there is None or (there.settings, there.shards) != (ours.settings, ours.shards):
            raise EmbeddingFolderError(
                f"'{self.folder}' was written anew since it was opened. Open it again."
            )
        self._version = version
