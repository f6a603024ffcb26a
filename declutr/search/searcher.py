"""What looks for the nearest rows, the final order of what it finds, and how much it misses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from declutr.inference.bulk import StoredEmbeddings
from declutr.system.vectors import least_effort

AT = 10
SAMPLE = 200
TARGET = 0.97
_ROUNDING = 1e-5
_MORE = 16  # candidates looked at beyond those asked for


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
        self.dimension = embeddings.dimension

    def __len__(self) -> int:
        """Return how many can be found."""
        return len(self.embeddings) - len(self.left_out)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors `(k, d)` of some row numbers `(k,)`, float32."""
        return self.embeddings[rows]

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all that can be found, some at a time: row numbers `(m,)`, and vectors `(m, d)`."""
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
        """Draw row numbers `(size,)` without replacement, rising; all if there are no more."""
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.choice(len(self), min(size, len(self)), replace=False))
        # The i-th row that is not left out: i, and as many as are left out before it.
        before = self.left_out - np.arange(len(self.left_out))
        return chosen + np.searchsorted(before, chosen, side="right")


class Searcher(Protocol):
    """Finds rows with high dot products. Exact ones find the highest, up to rounding."""

    approximate: bool

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return row numbers and dot products `(q, count)` for queries `(q, d)`, the highest first.

        Where there are not so many, row numbers are -1.
        """
        ...


class ApproximateSearcher(Searcher, Protocol):
    """One that looks at a part of the rows; at more of them with more effort."""

    effort: int

    @property
    def most_effort(self) -> int:
        """The effort with which it cannot find more."""
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
    """Return row numbers and cosines of the k nearest rows, nearest first; equal ones by number.

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


def tune(
    searcher: ApproximateSearcher, exact: Searcher, rows: SearchableRows, sample: int = SAMPLE
) -> float:
    """Give `searcher` the least effort with a recall@10 of `TARGET`, doubling; return its recall.

    Queries are rows themselves, drawn at random; what they should find is their ten nearest other
    rows. A row that is as near as the tenth counts, whichever of equal ones it is.
    """
    chosen = rows.sample(sample)
    queries = rows[chosen]
    depth = min(AT + 1, len(rows))
    if depth == 1:
        return 1.0
    truth, cosines = exact.nearest(queries, depth)
    tenth = _others(truth, cosines, chosen)[:, -1:]  # (q, 1)

    def recall(effort: int) -> float:
        searcher.effort = effort
        found, cosines = searcher.nearest(queries, depth)
        return float((_others(found, cosines, chosen) >= tenth - _ROUNDING).mean())

    return least_effort(recall, searcher.most_effort, TARGET)[1]


def _others(found: np.ndarray, cosines: np.ndarray, itself: np.ndarray) -> np.ndarray:
    """Return the cosines `(q, depth - 1)` of what was found beside the query itself, falling."""
    cosines = np.where((found == itself[:, None]) | (found < 0), -np.inf, cosines)
    return -np.sort(-cosines, axis=1)[:, :-1]
