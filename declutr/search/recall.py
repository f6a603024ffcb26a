"""How much an approximate search misses, and how hard it has to look."""

from __future__ import annotations

import numpy as np

from declutr.search.searchable_rows import SearchableRows
from declutr.search.searcher import ApproximateSearcher, Searcher
from declutr.system.inverted_lists import least_effort

AT = 10
SAMPLE = 200
TARGET = 0.97
_ROUNDING = 1e-5


def tune(
    searcher: ApproximateSearcher, exact: Searcher, rows: SearchableRows, sample: int = SAMPLE
) -> float:
    """Give `searcher` the least effort, doubling, that has a recall@10 of `TARGET`; its recall.

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
    """The cosines `(q, depth - 1)` of what was found beside the query itself, falling."""
    cosines = np.where((found == itself[:, None]) | (found < 0), -np.inf, cosines)
    return -np.sort(-cosines, axis=1)[:, :-1]
