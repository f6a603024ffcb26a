"""Search with hnswlib: all vectors in memory, compared one by one, or linked to a graph.

The graph is that of Malkov and Yashunin (2018, arXiv:1603.09320): from vector to nearer vector.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from declutr.search.searchable_rows import SearchableRows

_LINKS, _CONSTRUCTION = 16, 200  # a vector has up to so many links, found among so many
_SEED = 0


class BruteForce:
    """Exact."""

    approximate = False

    def __init__(self, rows: SearchableRows) -> None:
        import hnswlib

        self._index: Any = hnswlib.BFIndex(space="ip", dim=rows.dimension)
        self._index.init_index(max_elements=max(1, len(rows)))
        for numbers, block in rows.blocks():
            self._index.add_items(block, numbers)

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        found, distances = self._index.knn_query(queries, k=count)
        return found.astype(np.int64), 1 - distances


class Graph:
    """Approximate.

    # Parameters

    file : that `build` wrote.
    dimension : of the vectors.
    effort : how many vectors a search keeps in sight.
    """

    approximate = True

    def __init__(self, file: Path, dimension: int, effort: int = 16) -> None:
        import hnswlib

        self._index: Any = hnswlib.Index(space="ip", dim=dimension)
        self._index.load_index(str(file))
        self.effort = effort

    @classmethod
    def build(cls, rows: SearchableRows, file: Path) -> Graph:
        """Write `file`."""
        import hnswlib

        index = hnswlib.Index(space="ip", dim=rows.dimension)
        index.init_index(
            max_elements=len(rows), M=_LINKS, ef_construction=_CONSTRUCTION, random_seed=_SEED
        )
        for numbers, block in rows.blocks():
            index.add_items(block, numbers)
        index.save_index(str(file))
        return cls(file, rows.dimension)

    @property
    def most_effort(self) -> int:
        return int(self._index.element_count)

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        count = min(count, self.most_effort)
        self._index.set_ef(max(self.effort, count))
        try:
            found, distances = self._index.knn_query(queries, k=count)
        except RuntimeError:  # a graph in pieces, of equal vectors: it reaches fewer than asked for
            return self._fewer(queries, count)
        return found.astype(np.int64), 1 - distances

    def _fewer(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        if count == 1:
            shape = (len(queries), 1)
            return np.full(shape, -1, dtype=np.int64), np.full(shape, -np.inf, dtype=np.float32)
        return self.nearest(queries, count // 2)
