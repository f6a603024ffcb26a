"""Exact search in blocks of the stored vectors: needs nothing but numpy, and no memory."""

from __future__ import annotations

import numpy as np

from declutr.search.searchable_rows import SearchableRows


class ExactNumpy:
    """All dot products, block by block."""

    approximate = False

    def __init__(self, rows: SearchableRows) -> None:
        self._rows = rows

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        found = np.full((len(queries), count), -1, dtype=np.int64)  # (q, count), in no order yet
        best = np.full((len(queries), count), -np.inf, dtype=np.float32)
        for numbers, block in self._rows.blocks():
            scores = np.concatenate([best, queries @ block.T], axis=1)  # (q, count + m)
            every = np.broadcast_to(numbers, (len(queries), len(numbers)))
            places = np.argpartition(-scores, count - 1, axis=1)[:, :count]
            best = np.take_along_axis(scores, places, axis=1)
            found = np.take_along_axis(np.concatenate([found, every], axis=1), places, axis=1)
        order = np.lexsort((found, -best), axis=1)
        return np.take_along_axis(found, order, axis=1), np.take_along_axis(best, order, axis=1)
