"""Queries with candidates, parallel texts and summaries, and embeddings with and without ties."""

import zlib
from collections.abc import Sequence
from itertools import product

import numpy as np

from tests.evaluation.fakes import hashed

__all__ = ["PARALLEL", "SAMPLES", "SUMMARIES", "hashed", "tied"]

SAMPLES = [
    {
        "query": f"query {n}",
        "positive": [f"right {n} {i}" for i in range(n % 5)],
        "negative": [f"wrong {n * 3 % 7} {i}" for i in range(n * 7 % 13)],
    }
    for n in range(30)
]
"""Queries with lists of candidates, some of which are empty."""

PARALLEL = [(f"one {n}", f"one {n}" if n % 3 == 0 else f"two {n % 16}") for n in range(40)]
"""Pairs of texts, some of them equal, and some second ones in several pairs."""

SUMMARIES = [
    {
        "human_summaries": [f"human {n} {i}" for i in range(1 + n % 3)],
        "machine_summaries": [f"machine {n} {i}" for i in range(6)],
        "relevance": [float((n + i * i) % 5) if n % 4 else 3.0 for i in range(6)],
    }
    for n in range(12)
]
"""Summaries, of every fourth text equally relevant ones."""

_CORNERS = [np.array(bits) for bits in product((0, 1), repeat=8) if sum(bits) == 4]


def tied(texts: Sequence[str]) -> np.ndarray:
    """Return embeddings `(n, 8)` whose cosines are multiples of 1 / 4, in float32 too."""
    rows = [_CORNERS[zlib.crc32(text.encode()) % len(_CORNERS)] for text in texts]
    return np.array(rows, dtype=np.float32).reshape(len(rows), 8)
