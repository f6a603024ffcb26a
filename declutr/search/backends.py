"""What searches: numpy or faiss, exactly or by a structure that looks at a part of the rows."""

from __future__ import annotations

import importlib.util
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from declutr.search.index_files import SearchError
from declutr.search.searcher import ExactNumpy, SearchableRows, Searcher
from declutr.system.vectors import PER_CENTRE, loaded_faiss, number_of_lists

BACKENDS = ("auto", "numpy", "faiss", "hnswlib")

EXACT_ROWS = 200_000
"""Up to so many rows search is exact: it takes a fraction of a second, about what embedding the
query does."""

_POOL = 8
"""To find k rows, lists with 8 k at least are looked into: nine in ten of the true k nearest are
there. Lists with k would often hold half of them."""

_LINKS, _CONSTRUCTION = 16, 200  # a vector of a graph has up to so many links, found among so many
_NUMBERED = b"IxMp"  # with which a file of a graph begins; those of the library hnswlib do not


def chosen_backend(backend: str) -> str:
    """Return `backend`, or for `"auto"` faiss if it is installed, or else numpy.

    # Raises

    `SearchError` : there is none of that name.
    `ImportError` : it is not installed.
    """
    if backend not in BACKENDS:
        raise SearchError(f"Unknown backend {backend!r}, expected one of {', '.join(BACKENDS)}.")
    if backend == "auto":
        return "faiss" if is_installed("faiss") else "numpy"
    if not is_installed(backend):
        raise ImportError(
            f"The backend {backend} needs the package faiss-cpu, which is not installed: pip "
            "install 'declutr[search]', or pip install faiss-cpu. The backend numpy needs nothing."
        )
    return backend


def is_installed(backend: str) -> bool:
    """Return whether the library behind a backend is there; nothing is imported."""
    return backend == "numpy" or importlib.util.find_spec("faiss") is not None


def exact_searcher(backend: str, rows: SearchableRows) -> Searcher:
    """Return a searcher that compares a query with all rows."""
    return ExactNumpy(rows) if backend == "numpy" else FlatFaiss(rows)


class FlatFaiss:
    """Exact, `IndexFlatIP`: all vectors in memory."""

    approximate = False

    def __init__(self, rows: SearchableRows) -> None:
        faiss = loaded_faiss()
        self._index = _filled(faiss.IndexIDMap(faiss.IndexFlatIP(rows.dimension)), rows)

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        scores, found = self._index.search(np.ascontiguousarray(queries, np.float32), count)
        return found, scores


class InvertedLists:
    """Approximate, `IndexIVFFlat`; the file is mapped and not loaded.

    Vectors are divided among the nearest of some centres, and a search looks into the lists nearest
    to the query. Lists of equal lines do them no harm, which graphs get lost in.

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
        faiss.write_index(_filled(index, rows), str(file))
        return cls(file)

    @property
    def most_effort(self) -> int:
        return int(self._index.nlist)

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
        """Return how many lists `(q,)` to look into to see so many rows, `effort` at least."""
        least = min(self.effort, self.most_effort)
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


class Graph:
    """Approximate, `IndexHNSWFlat`: all vectors in memory, linked to a graph.

    The graph is that of Malkov and Yashunin (2018, arXiv:1603.09320): from vector to nearer vector.

    # Parameters

    file : that `build` wrote.
    effort : how many vectors a search keeps in sight.
    """

    approximate = True

    def __init__(self, file: Path, effort: int = 16) -> None:
        self._index: Any = loaded_faiss().read_index(str(file))
        self.effort = effort

    @classmethod
    def build(cls, rows: SearchableRows, file: Path) -> Graph:
        """Write `file`."""
        faiss = loaded_faiss()
        graph = faiss.IndexHNSWFlat(rows.dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = _CONSTRUCTION
        faiss.write_index(_filled(faiss.IndexIDMap(graph), rows), str(file))
        return cls(file)

    @property
    def most_effort(self) -> int:
        return int(self._index.ntotal)

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        parameters = loaded_faiss().SearchParametersHNSW(efSearch=max(self.effort, count))
        queries = np.ascontiguousarray(queries, np.float32)
        scores, found = self._index.search(queries, count, params=parameters)
        return found, scores


def _filled(index: Any, rows: SearchableRows) -> Any:
    """Return an index of faiss with all rows that can be found, by their numbers."""
    for numbers, block in rows.blocks():
        index.add_with_ids(block, numbers)
    return index


def is_of_hnswlib(file: Path) -> bool:
    """Return whether a graph was written by the library hnswlib, as releases before 1.8 did."""
    with file.open("rb") as opened:
        return opened.read(len(_NUMBERED)) != _NUMBERED


APPROXIMATE: dict[str, type[InvertedLists | Graph]] = {"faiss": InvertedLists, "hnswlib": Graph}
"""What looks at a part of the rows; graphs are named after the library that first built them."""
