"""Search with faiss: a flat index in memory, or inverted lists on disk.

Inverted lists (IVF) divide the vectors among the nearest of some centres, and a search looks into
the lists nearest to the query. Lists of equal lines do them no harm, which graphs get lost in.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from declutr.search.searchable_rows import SearchableRows
from declutr.system.inverted_lists import PER_CENTRE, loaded_faiss, number_of_lists

_POOL = 8
"""To find k rows, lists with 8 k at least are looked into: nine in ten of the true k nearest are
there. Lists with k would often hold half of them."""


class FlatFaiss:
    """Exact, `IndexFlatIP`: all vectors in memory."""

    approximate = False

    def __init__(self, rows: SearchableRows) -> None:
        faiss = loaded_faiss()
        self._index: Any = faiss.IndexIDMap(faiss.IndexFlatIP(rows.dimension))
        for numbers, block in rows.blocks():
            self._index.add_with_ids(block, numbers)

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        scores, found = self._index.search(np.ascontiguousarray(queries, np.float32), count)
        return found, scores


class InvertedLists:
    """Approximate, `IndexIVFFlat`; the file is mapped and not loaded.

    # Parameters

    file : that `build` wrote.
    effort : how many lists are looked into at least; more where they hold few rows for the number
        asked for, so that as many are found as there are.
    """

    approximate = True

    def __init__(self, file: Path, effort: int = 1) -> None:
        faiss = loaded_faiss()
        self._index: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        self.effort = effort

    @classmethod
    def build(cls, rows: SearchableRows, file: Path) -> InvertedLists:
        """Write `file`. All vectors are in memory meanwhile."""
        faiss = loaded_faiss()
        lists = number_of_lists(len(rows))
        index = faiss.IndexIVFFlat(
            faiss.IndexFlatIP(rows.dimension), rows.dimension, lists, faiss.METRIC_INNER_PRODUCT
        )
        index.train(rows[rows.sample(lists * PER_CENTRE)])
        for numbers, block in rows.blocks():
            index.add_with_ids(block, numbers)
        faiss.write_index(index, str(file))
        return cls(file)

    @property
    def most_effort(self) -> int:
        return int(self._index.nlist)

    @property
    def effort(self) -> int:
        return int(self._index.nprobe)

    @effort.setter
    def effort(self, lists: int) -> None:
        self._index.nprobe = min(lists, self.most_effort)

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        queries = np.ascontiguousarray(queries, np.float32)
        found = np.empty((len(queries), count), dtype=np.int64)
        scores = np.empty((len(queries), count), dtype=np.float32)
        lists = self._lists(queries, _POOL * count)
        for number in np.unique(lists):
            some = lists == number
            parameters = loaded_faiss().SearchParametersIVF(nprobe=int(number))
            scores[some], found[some] = self._index.search(queries[some], count, params=parameters)
        return found, scores

    def _lists(self, queries: np.ndarray, rows: int) -> np.ndarray:
        """How many lists `(q,)` to look into to see so many rows, `effort` at least."""
        least = self._index.nprobe
        if rows <= self._fewest[least - 1]:
            return np.full(len(queries), least)
        _, order = self._index.quantizer.search(queries, self.most_effort)  # (q, lists)
        seen = self._sizes[order].cumsum(axis=1)
        return (1 + (seen < rows).sum(axis=1)).clip(least, self.most_effort)

    @cached_property
    def _sizes(self) -> np.ndarray:
        """How many rows each list holds."""
        lists = self._index.invlists
        return np.array([lists.list_size(number) for number in range(self.most_effort)])

    @cached_property
    def _fewest(self) -> np.ndarray:
        """How many rows 1, 2, ... lists hold at least, whichever they are."""
        return np.sort(self._sizes).cumsum()
