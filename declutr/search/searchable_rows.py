"""The rows of stored embeddings that can be hits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from declutr.inference.bulk import StoredEmbeddings


class SearchableRows:
    """Stored embeddings of length 1, without the rows of blank lines and those that are not finite.

    Rows keep their numbers.

    # Parameters

    embeddings : `(n, d)`.
    left_out : numbers of rows that are never to be found, rising.
    """

    def __init__(self, embeddings: StoredEmbeddings, left_out: np.ndarray) -> None:
        self.embeddings = embeddings
        self.left_out = left_out

    def __len__(self) -> int:
        """How many can be found."""
        return len(self.embeddings) - len(self.left_out)

    @property
    def dimension(self) -> int:
        return self.embeddings.dimension

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """The vectors `(k, d)` of some row numbers `(k,)`, float32."""
        return self.embeddings[rows]

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All that can be found, some at a time: row numbers `(m,)`, and vectors `(m, d)`."""
        for start, block in self.embeddings.blocks():
            rows = np.arange(start, start + len(block))
            first, end = np.searchsorted(self.left_out, [start, start + len(block)])
            if first < end:
                kept = np.ones(len(block), dtype=bool)
                kept[self.left_out[first:end] - start] = False
                rows, block = rows[kept], block[kept]
            if len(rows):
                yield rows, np.ascontiguousarray(block, dtype=np.float32)

    def sample(self, size: int, seed: int = 0) -> np.ndarray:
        """Row numbers `(size,)` drawn without replacement, rising; all if there are no more."""
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.choice(len(self), min(size, len(self)), replace=False))
        # The i-th row that is not left out: i, and as many as are left out before it.
        before = self.left_out - np.arange(len(self.left_out))
        return chosen + np.searchsorted(before, chosen, side="right")
