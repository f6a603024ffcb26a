"""Search for the nearest rows: the interface, exact search, ranking of hits, and recall."""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from declutr.inference.bulk import StoredEmbeddings
from declutr.system.vectors import least_effort

AT = 10
"""The number of nearest rows over which recall is measured."""
SAMPLE = 200
"""The number of queries by which recall is measured."""
TARGET = 0.97
"""The recall that approximate search is tuned to."""
_ROUNDING = 1e-5
_MORE = 16  # candidates beyond those that are asked for
_AT_ONCE = 4096  # candidates whose embeddings are in memory together


class SearchableRows:
    """The stored embeddings of an index without the rows that are never found.

    Rows keep their numbers. The rows left out are blank lines and embeddings that are not finite.

    # Parameters

    embeddings : the stored embeddings `(n, d)`, of length 1.
    left_out : the row numbers to leave out, in ascending order.
    """

    def __init__(self, embeddings: StoredEmbeddings, left_out: np.ndarray) -> None:
        self.embeddings = embeddings
        self.left_out = left_out
        self.dimension = embeddings.dimension

    def __len__(self) -> int:
        """Return the number of rows that can be found."""
        return len(self.embeddings) - len(self.left_out)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return the embeddings `(k, d)` of row numbers `(k,)` in float32."""
        return self.embeddings[rows]

    def blocks(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield all rows that can be found, in blocks of numbers `(m,)` and embeddings `(m, d)`."""
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
        """Draw row numbers `(size,)` without replacement, in ascending order.

        There are fewer if fewer rows can be found.
        """
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.choice(len(self), min(size, len(self)), replace=False))
        # The number of the i-th row that can be found is i plus the number of rows left out before
        # it.
        before = self.left_out - np.arange(len(self.left_out))
        return chosen + np.searchsorted(before, chosen, side="right")


class Searcher(Protocol):
    """The interface of searchers for the rows that have the highest dot products with queries.

    An exact searcher (`approximate` is false) finds the highest ones up to rounding.
    """

    approximate: bool

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows with the highest dot products, in descending order.

        # Parameters

        queries : `(q, d)`, of length 1.
        count : the number of rows to find.

        # Returns

        Row numbers `(q, count)` and dot products `(q, count)`. Where fewer rows are found, the row
        numbers are -1.
        """
        ...


class ApproximateSearcher(Searcher, Protocol):
    """The interface of searchers that compare queries with a part of the rows.

    The part grows with `effort`.
    """

    effort: int

    @property
    def most_effort(self) -> int:
        """The effort above which a search cannot find more."""
        ...


class ExactNumpy:
    """An exact searcher with numpy, which reads embeddings from disk block by block."""

    approximate = False

    def __init__(self, rows: SearchableRows) -> None:
        self._rows = rows

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest rows and their dot products; see `Searcher.nearest`."""
        found = np.full((len(queries), count), -1, dtype=np.int64)  # (q, count), not yet sorted
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
    """Return the k nearest rows, ranked by cosines in float64.

    The searcher finds candidates in float32, more of them as long as rounding may have excluded one
    of the k nearest. All exact searchers therefore give the same result, in whatever order they
    sum, and rows with equal embeddings have equal cosines.

    # Parameters

    searcher : the searcher for candidates among `rows`.
    rows : the embeddings.
    query : a query `(d,)` of length 1.
    k : the maximum number of rows.

    # Returns

    Row numbers and cosines in descending order of cosines; rows with equal cosines are in ascending
    order of their numbers.
    """
    k = min(k, len(rows))
    if not k:
        return np.empty(0, dtype=np.int64), np.empty(0)
    # This bounds the error of a float32 dot product of unit vectors in any order of summation.
    rounding = rows.dimension * float(np.finfo(np.float32).eps)
    count = k + _MORE
    while True:
        count = min(count, len(rows))
        found, scores = (part[0] for part in searcher.nearest(query[None], count))
        found, scores = found[found >= 0], scores[found >= 0]
        cosines = _cosines(rows, found, query)
        order = np.lexsort((found, -cosines))[:k]
        # Up to rounding, a row that is not among the candidates has at most their lowest score.
        complete = count == len(rows) or searcher.approximate
        if complete or scores[-1] + 2 * rounding < cosines[order[-1]]:
            return found[order], cosines[order]
        count *= 4


def _cosines(rows: SearchableRows, numbers: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the cosines `(k,)` of rows with a query, in float64.

    All rows are candidates if all are equally near, and need not be in memory together.
    """
    query = query.astype(np.float64)
    found = np.empty(len(numbers))
    for start in range(0, len(numbers), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        found[part] = (rows[numbers[part]].astype(np.float64) * query).sum(axis=1)
    return found


def tune(
    searcher: ApproximateSearcher, exact: Searcher, rows: SearchableRows, sample: int = SAMPLE
) -> float:
    """Set the effort of an approximate searcher to reach a recall@10 of `TARGET`.

    The effort is doubled until the recall is reached. The queries are randomly drawn rows, which
    should find their ten nearest other rows. Any row that is as near as the tenth counts as found.

    # Parameters

    searcher : the searcher, whose `effort` is set.
    exact : an exact searcher over the same rows.
    rows : the embeddings.
    sample : the number of queries.

    # Returns

    The recall at the chosen effort.
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
    """Return the cosines `(q, depth - 1)` of rows except the query itself, in descending order."""
    cosines = np.where((found == itself[:, None]) | (found < 0), -np.inf, cosines)
    return -np.sort(-cosines, axis=1)[:, :-1]
