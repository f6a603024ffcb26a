"""Search backends: exact search with numpy or faiss, and approximate search with faiss."""

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
"""The names of backends: inverted lists are `faiss`, graphs (also built by faiss) `hnswlib`."""

EXACT_ROWS = 200_000
"""The number of rows up to which search is exact.

It then takes a fraction of a second, about as long as embedding the query.
"""

# To find k rows, lists with at least 8 k rows are searched. They contain about nine in ten of the
# true k nearest rows, where lists with k rows would often contain only half of them.
_POOL = 8

_LINKS, _CONSTRUCTION = 16, 200  # the parameters M and efConstruction of HNSW graphs
_NUMBERED = b"IxMp"  # the first bytes of a graph written by faiss, but not by the library hnswlib


def chosen_backend(backend: str) -> str:
    """Return the backend to use; for `"auto"` faiss if it is installed, and numpy otherwise.

    # Parameters

    backend : one of `BACKENDS`.

    # Raises

    `SearchError` : if there is no backend of that name.
    `ImportError` : if its library is not installed.
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
    """Return whether the library of a backend is installed, without importing it."""
    return backend == "numpy" or importlib.util.find_spec("faiss") is not None


def exact_searcher(backend: str, rows: SearchableRows) -> Searcher:
    """Return a searcher that compares queries with all rows.

    # Parameters

    backend : any of `BACKENDS` except `"auto"`; faiss is used unless it is `"numpy"`.
    rows : the embeddings to search.
    """
    return ExactNumpy(rows) if backend == "numpy" else FlatFaiss(rows)


class FlatFaiss:
    """An exact searcher with faiss (`IndexFlatIP`), which holds all embeddings in memory."""

    approximate = False

    def __init__(self, rows: SearchableRows) -> None:
        faiss = loaded_faiss()
        self._index = _filled(faiss.IndexIDMap(faiss.IndexFlatIP(rows.dimension)), rows)

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest rows and their dot products; see `Searcher.nearest`."""
        scores, found = self._index.search(np.ascontiguousarray(queries, np.float32), count)
        return found, scores


class InvertedLists:
    """An approximate searcher with inverted lists of faiss (`IndexIVFFlat`).

    Each embedding is put into the list of its nearest centre, and a search scans the lists whose
    centres are nearest to the query. Many equal lines do not harm recall, as they do in graphs. The
    file is mapped into memory.

    # Parameters

    file : the file that `build` wrote.
    effort : the minimum number of lists to scan. More are scanned where these hold too few rows for
        the number that is asked for.
    """

    approximate = True

    def __init__(self, file: Path, effort: int = 1) -> None:
        faiss = loaded_faiss()
        self._index: Any = faiss.read_index(str(file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        self.effort = effort

    @classmethod
    def build(cls, rows: SearchableRows, file: Path) -> InvertedLists:
        """Build inverted lists of `rows`, write them to `file`, and return a searcher.

        All embeddings are in memory during the build.
        """
        faiss = loaded_faiss()
        lists = number_of_lists(len(rows))
        flat, metric = faiss.IndexFlatIP(rows.dimension), faiss.METRIC_INNER_PRODUCT
        index = faiss.IndexIVFFlat(flat, rows.dimension, lists, metric)
        index.train(rows[rows.sample(lists * PER_CENTRE)])
        faiss.write_index(_filled(index, rows), str(file))
        return cls(file)

    @property
    def most_effort(self) -> int:
        """The number of lists."""
        return int(self._index.nlist)

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest rows found and their dot products; see `Searcher.nearest`."""
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
        """Return the number of lists `(q,)` to scan for at least `rows` rows and `effort` lists."""
        least = min(self.effort, self.most_effort)
        if rows <= self._fewest[least - 1]:
            return np.full(len(queries), least)
        _, order = self._index.quantizer.search(queries, self.most_effort)  # (q, lists)
        seen = self._sizes[order].cumsum(axis=1)
        return (1 + (seen < rows).sum(axis=1)).clip(least, self.most_effort)

    @cached_property
    def _sizes(self) -> np.ndarray:
        """The number of rows in each list."""
        lists = self._index.invlists
        return np.array([lists.list_size(number) for number in range(self.most_effort)])

    @cached_property
    def _fewest(self) -> np.ndarray:
        """The minimum number of rows in any 1, 2, ... lists."""
        return np.sort(self._sizes).cumsum()


class Graph:
    """An approximate searcher with an HNSW graph of faiss (`IndexHNSWFlat`).

    A search follows links from embedding to nearer embedding (Malkov and Yashunin, 2018,
    arXiv:1603.09320). All embeddings are in memory.

    # Parameters

    file : the file that `build` wrote.
    effort : the number of candidates that a search keeps, called `efSearch` by faiss.
    """

    approximate = True

    def __init__(self, file: Path, effort: int = 16) -> None:
        self._index: Any = loaded_faiss().read_index(str(file))
        self.effort = effort

    @classmethod
    def build(cls, rows: SearchableRows, file: Path) -> Graph:
        """Build a graph of `rows`, write it to `file`, and return a searcher."""
        faiss = loaded_faiss()
        graph = faiss.IndexHNSWFlat(rows.dimension, _LINKS, faiss.METRIC_INNER_PRODUCT)
        graph.hnsw.efConstruction = _CONSTRUCTION
        faiss.write_index(_filled(faiss.IndexIDMap(graph), rows), str(file))
        return cls(file)

    @property
    def most_effort(self) -> int:
        """The number of rows."""
        return int(self._index.ntotal)

    def nearest(self, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the nearest rows found and their dot products; see `Searcher.nearest`."""
        parameters = loaded_faiss().SearchParametersHNSW(efSearch=max(self.effort, count))
        queries = np.ascontiguousarray(queries, np.float32)
        scores, found = self._index.search(queries, count, params=parameters)
        return found, scores


def _filled(index: Any, rows: SearchableRows) -> Any:
    """Add all searchable rows to a faiss index under their row numbers, and return it."""
    for numbers, block in rows.blocks():
        index.add_with_ids(block, numbers)
    return index


def is_of_hnswlib(file: Path) -> bool:
    """Return whether the library hnswlib wrote a graph, as it did in releases up to 1.8."""
    with file.open("rb") as opened:
        return opened.read(len(_NUMBERED)) != _NUMBERED


APPROXIMATE: dict[str, type[InvertedLists | Graph]] = {"faiss": InvertedLists, "hnswlib": Graph}
"""The approximate searchers by backend.

Graphs have the name of the library that built them before faiss did.
"""
