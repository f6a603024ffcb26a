"""What looks for the nearest rows, exactly with numpy, and the final order of what it finds."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from declutr.search.searchable_rows import SearchableRows

_MORE = 16  # candidates looked at beyond those asked for


class Searcher(Protocol):
    """Finds rows with high dot products. Exact ones find the highest, up to rounding."""

    @property
    def approximate(self) -> bool: ...

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """For queries `(q, d)`: row numbers and dot products `(q, count)`, the highest first.

        Where there are not so many, row numbers are -1.
        """
        ...


class ApproximateSearcher(Searcher, Protocol):
    """One that looks at a part of the rows; at more of them with more effort."""

    effort: int

    @property
    def most_effort(self) -> int:
        """With which it cannot find more."""
        ...


class ExactNumpy:
    """All dot products, block by block of the stored vectors: needs no memory and no library."""

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


def ranked(
    searcher: Searcher, rows: SearchableRows, query: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers and cosines of the k nearest rows, the nearest first; equal ones by number.

    A searcher's float32 decides what is looked at; the order is that of float64. So all exact
    searchers give the same, whatever order they add numbers in, and rows with equal vectors have
    equal cosines. More candidates are asked for while rounding may have kept one of the k out.

    # Parameters

    query : `(d,)`, of length 1 as `rows` are.
    """
    k = min(k, len(rows))
    if not k:
        return np.empty(0, dtype=np.int64), np.empty(0)
    # Of a float32 dot product of unit vectors, in whatever order it is summed.
    rounding = rows.dimension * float(np.finfo(np.float32).eps)
    count = k + _MORE
    while True:
        count = min(count, len(rows))
        found, scores = (part[0] for part in searcher.nearest(query[None], count))
        found, scores = found[found >= 0], scores[found >= 0]
        cosines = (rows[found].astype(np.float64) * query.astype(np.float64)).sum(axis=1)
        order = np.lexsort((found, -cosines))[:k]
        # A row that was not looked at has at most the last score, up to rounding.
        complete = count == len(rows) or searcher.approximate
        if complete or scores[-1] + 2 * rounding < cosines[order[-1]]:
            return found[order], cosines[order]
        count *= 4
