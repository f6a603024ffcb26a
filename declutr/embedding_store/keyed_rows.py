"""The stored embeddings of one encoder, found by key."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from declutr.embedding_store.blocks import (
    DTYPES,
    KEY_BYTES,
    StoreError,
    open_block,
    remove_unfinished,
    size_on_disk,
    sound_rows,
    write_block,
)
from declutr.embedding_store.row_index import RowIndex

logger = logging.getLogger(__name__)

_MAPPED = 64  # blocks that are kept open


def text_keys(texts: Iterable[str]) -> list[bytes]:
    """Return a key of 16 bytes for each text, a digest of its UTF-8."""
    return [
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY_BYTES).digest()
        for text in texts
    ]


class KeyedRows:
    """The embeddings `(n, d)` in a folder, one for each key; rows are added and never changed.

        FOLDER/index.sqlite3   from keys to rows
        FOLDER/*.npy           the blocks, one for each call of `append`

    The blocks are the truth: those that the index lacks, because a process was killed or the index
    was damaged, are indexed again on opening. Each row is verified when it is read; one that is
    damaged counts as missing, with a warning, and may be appended again.

    # Parameters

    folder : the folder, which is made if it does not exist.

    # Raises

    `StoreError` : the folder cannot be read or written; so do all methods.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = place = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._index = RowIndex(self.folder)
        # Without a reference to `self`, so that this object is freed, and its mark of use with it.
        self._block: Callable[[str], np.ndarray] = lru_cache(_MAPPED)(
            lambda name: open_block(place / name)
        )
        self._width = 0
        self._follow_folder()

    @property
    def dimension(self) -> int:
        """The width d of the embeddings; 0 if there are none yet."""
        if not self._width:
            for name in sorted(self._index.blocks()):
                try:
                    self._width = self._block(name)["vector"].shape[1]
                except StoreError:  # reading it will warn
                    continue
                break
        return self._width

    @property
    def size(self) -> int:
        """The size on disk, in bytes."""
        return size_on_disk(self.folder)

    def __len__(self) -> int:
        return len(self._index)

    def missing(self, keys: Sequence[bytes]) -> list[bytes]:
        """Return those keys, each once, that have no embedding."""
        places = self._index.places(keys)
        return [key for key in dict.fromkeys(keys) if key not in places]

    def get(self, keys: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
        """Return the embeddings `(n, d)`, float32, of n keys, and which of them are there, `(n,)`.

        Rows of missing keys are NaN.

        # Parameters

        keys : n keys, some of which may be the same.
        """
        places = self._index.places(keys)
        found = np.zeros(len(keys), dtype=bool)
        vectors = np.full((len(keys), self.dimension), np.nan, dtype=np.float32)
        by_block: dict[str, list[tuple[int, int]]] = {}
        for position, key in enumerate(keys):
            if (place := places.get(key)) is not None:
                by_block.setdefault(place.block, []).append((position, place.row))
        for block, pairs in by_block.items():
            positions, numbers = np.array(pairs).T
            read, sound = self._read(block, numbers, [keys[at] for at in positions])
            if sound.any():
                vectors[positions[sound]] = read[sound]
                found[positions[sound]] = True
        return vectors, found

    def append(self, keys: Sequence[bytes], vectors: np.ndarray) -> int:
        """Store embeddings of keys that have none yet, and return how many were stored.

        When this returns, they are on disk. Left out are rows that are not finite, and those of
        keys that have an embedding, which other processes may have stored meanwhile. Float32 is
        stored as float16 if that loses nothing, as with encoders that compute in half precision.

        # Parameters

        keys : n keys of 16 bytes.
        vectors : the embeddings `(n, d)`, in float32 or float16.

        # Raises

        `ValueError` : the keys or the embeddings have another length, shape or dtype.
        """
        self._require(keys, vectors)
        rows = {key: row for row, key in enumerate(keys)}
        finite = np.isfinite(vectors).all(axis=1)
        new = [key for key in self.missing(keys) if finite[rows[key]]]
        if not new:
            return 0
        kept = vectors[[rows[key] for key in new]]
        with np.errstate(over="ignore"):
            half = kept.astype(np.float16)
        if np.array_equal(half.astype(kept.dtype), kept):
            kept = half
        name = write_block(self.folder, new, kept)
        self._width = kept.shape[1]
        return self._index.add(name, lambda: [(key, row) for row, key in enumerate(new)])

    def close(self) -> None:
        """Close the index of keys, after which no other method may be called."""
        self._index.close()

    def _require(self, keys: Sequence[bytes], vectors: np.ndarray) -> None:
        expected = (len(keys), self.dimension or "d")
        shaped = vectors.ndim == 2 and len(vectors) == len(keys) and vectors.shape[1]
        if not shaped or self.dimension not in (0, vectors.shape[1]):
            raise ValueError(f"Expected embeddings of shape {expected}, got {vectors.shape}.")
        if vectors.dtype.name not in DTYPES:
            raise ValueError(f"Expected embeddings in {' or '.join(DTYPES)}, got {vectors.dtype}.")
        if wrong := [key for key in keys if len(key) != KEY_BYTES]:
            raise ValueError(f"Expected keys of {KEY_BYTES} bytes, got {len(wrong[0])}.")

    def _read(
        self, block: str, rows: np.ndarray, keys: Sequence[bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows of a block, `(k, d)`, and which are sound, `(k,)`; forget the others."""
        try:
            records = self._block(block)[rows]
            vectors, sound = records["vector"], sound_rows(records, keys)
            sound &= vectors.shape[1] == self.dimension
        except (StoreError, IndexError):
            vectors = np.empty((len(rows), 0), np.float32)
            sound = np.zeros(len(rows), dtype=bool)
        if not sound.all():
            logger.warning(
                "'%s' is damaged: %d of %d embeddings are not those that were written, and count "
                "as missing.", self.folder / block, int((~sound).sum()), len(sound),
            )  # fmt: skip
            self._index.forget(key for key, good in zip(keys, sound, strict=True) if not good)
        return vectors, sound

    def _follow_folder(self) -> None:
        """Index blocks that the index lacks, and forget those that are gone."""
        known, there = self._index.blocks(), {file.name for file in self.folder.glob("*.npy")}
        remove_unfinished(self.folder)
        for name in sorted(known - there):
            self._index.forget_block(name)
        for name in sorted(there - known):
            self._index.add(name, lambda name=name: self._keys_of(name))  # type: ignore[misc]

    def _keys_of(self, block: str) -> list[tuple[bytes, int]]:
        """Return the keys of the sound rows of a block, with the numbers of their rows."""
        try:
            rows = self._block(block)
        except StoreError as error:
            logger.warning("%s It is left out.", error)
            return []
        return [(rows["key"][row].tobytes(), int(row)) for row in np.flatnonzero(sound_rows(rows))]
