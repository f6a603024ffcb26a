"""Search by meaning over one's own lines.

    build_index(encoder, lines, "index")
    SearchIndex("index").search("query", k=10)  # [Hit(row, score, text), ...]

Vectors are those of `declutr.inference.bulk`, scaled to length 1. Search is exact up to
`EXACT_ROWS` lines, and always with numpy; beyond, lists or graphs of faiss look at a part of the
lines, and say how much they miss.
"""

from declutr.search.backends import BACKENDS, EXACT_ROWS
from declutr.search.building import IndexSummary, build_index
from declutr.search.index import Hit, SearchIndex
from declutr.search.index_files import SearchError

__all__ = [
    "BACKENDS",
    "EXACT_ROWS",
    "Hit",
    "IndexSummary",
    "SearchError",
    "SearchIndex",
    "build_index",
]
