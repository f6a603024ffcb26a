"""Which library searches: the one asked for, or the best that is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from declutr.search.description import SearchError
from declutr.search.searchable_rows import SearchableRows
from declutr.search.searcher import ApproximateSearcher, ExactNumpy, Searcher
from declutr.search.with_faiss import FlatFaiss, InvertedLists
from declutr.search.with_hnswlib import BruteForce, Graph

BACKENDS = ("auto", "numpy", "faiss", "hnswlib")

EXACT_ROWS = 200_000
"""Up to so many rows search is exact: it takes a fraction of a second, about what embedding the
query does."""

_PACKAGES = {"faiss": "faiss-cpu", "hnswlib": "hnswlib"}


def chosen_backend(backend: str) -> str:
    """`backend`, or for `"auto"` faiss, hnswlib or numpy, whichever is installed first.

    # Raises

    `SearchError` : there is none of that name.
    `ImportError` : it is not installed.
    """
    if backend not in BACKENDS:
        raise SearchError(f"Unknown backend {backend!r}, expected one of {', '.join(BACKENDS)}.")
    if backend == "auto":
        return next((name for name in _PACKAGES if is_installed(name)), "numpy")
    if not is_installed(backend):
        package = _PACKAGES[backend]
        extra = "pip install 'declutr[search]', or " if backend == "faiss" else ""
        raise ImportError(
            f"The backend {backend} needs the package {package}, which is not installed: "
            f"{extra}pip install {package}. The backend numpy needs nothing."
        )
    return backend


def is_installed(backend: str) -> bool:
    """Whether the library behind a backend is there; nothing is imported."""
    return backend == "numpy" or importlib.util.find_spec(backend) is not None


def exact_searcher(backend: str, rows: SearchableRows) -> Searcher:
    """One that compares a query with all rows."""
    if backend == "faiss":
        return FlatFaiss(rows)
    return BruteForce(rows) if backend == "hnswlib" else ExactNumpy(rows)


def built_searcher(backend: str, rows: SearchableRows, file: Path) -> ApproximateSearcher:
    """One that does not, kept in `file`; of faiss or hnswlib."""
    if backend == "faiss":
        return InvertedLists.build(rows, file)
    return Graph.build(rows, file)


def opened_searcher(backend: str, dimension: int, file: Path, effort: int) -> ApproximateSearcher:
    """The one that `built_searcher` kept in `file`."""
    if backend == "faiss":
        return InvertedLists(file, effort)
    return Graph(file, dimension, effort)
