"""Semantic search over lines of text.

    build_index(encoder, lines, "index")
    SearchIndex("index").search("query", k=10)  # [Hit(row, score, text), ...]

The embeddings of lines are stored by `declutr.inference.bulk` and scaled to length 1. Search is
exact up to `EXACT_ROWS` lines, and for any number of lines with numpy. For more lines, faiss
searches only a part of them by inverted lists or a graph, whose recall is measured on building.
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
