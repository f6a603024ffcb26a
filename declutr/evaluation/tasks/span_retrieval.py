"""Label-free retrieval: find another span of the same document among spans of all documents."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from declutr.sampling.row_draws import document_rng
from declutr.sampling.spans import DocumentTooShort, SpanSampler
from declutr.system.vectors import unit_rows

Encode = Callable[[list[str]], np.ndarray]
"""A function from n texts to their embeddings `(n, d)`."""


ROUNDING = 1e-9
"""The difference of cosines up to which they count as equal.

Cosines of equal vectors differ slightly, because matrix products sum in another order at the
borders of blocks.
"""


class SpanPairs(NamedTuple):
    """Pairs of texts `queries[i]` and `targets[i]` that come from the same document."""

    queries: list[str]
    targets: list[str]


def adjacent_span_pairs(
    documents: Sequence[str], min_words: int = 16, max_words: int = 64, seed: int = 0
) -> SpanPairs:
    """Draw a pair of adjacent spans, which do not overlap, from each document.

    The spans that training contrasts overlap in most cases, and even random weights find such a
    pair by its common words. Adjacent spans make a harder and fairer task.

    # Parameters

    documents : texts; those of fewer than `2 * max_words` words are left out.
    min_words, max_words : bounds of the length of a span, in words separated by white space.
    seed : the seed of the draws, which are equal for equal documents.

    # Raises

    `ValueError` : fewer than two documents are long enough.
    """
    sampler = SpanSampler(1, 1, min_words, max_words, strategy="adjacent")
    pairs = SpanPairs([], [])
    for number, document in enumerate(documents):
        words = document.split()
        try:
            spans = sampler.sample(len(words), document_rng(seed, 0, number))
        except DocumentTooShort:
            continue
        (start, end), (begin, stop) = spans.anchors[0].tolist(), spans.positives[0, 0].tolist()
        pairs.targets.append(" ".join(words[start:end]))
        pairs.queries.append(" ".join(words[begin:stop]))
    if len(pairs.queries) < 2:
        raise ValueError(
            f"Only {len(pairs.queries)} of {len(documents)} documents have {2 * max_words} words "
            "or more; at least two are needed. Lower max_words."
        )
    return pairs


class SpanRanks(NamedTuple):
    """The results of each query, `(n,)` each.

    If targets are equally similar, values are means over all orders of them. Embeddings that are
    all equal are therefore no better than chance.
    """

    found: np.ndarray
    """The probability that the most similar target is the right one: 1 or 0 without ties."""
    reciprocal: np.ndarray
    """The reciprocal rank of the right target."""


def span_ranks(queries: np.ndarray, targets: np.ndarray, block: int = 1024) -> SpanRanks:
    """Rank targets by cosine for each query, where `targets[i]` is the right one for query i.

    # Parameters

    queries, targets : embeddings, `(n, d)` each.
    block : the number of queries to compare at a time.
    """
    sides = (np.asarray(side, dtype=np.float64) for side in (queries, targets))
    queries, targets = map(unit_rows, sides)
    above, tied = [], []
    for start in range(0, len(queries), block):
        cosines = queries[start : start + block] @ targets.T  # (b, n)
        ahead = cosines - np.diagonal(cosines, offset=start)[:, None]
        above.append((ahead > ROUNDING).sum(axis=1))
        tied.append((np.abs(ahead) <= ROUNDING).sum(axis=1))  # the right target is one of them
    before, same = np.concatenate(above), np.concatenate(tied)
    # The harmonic numbers 1 + 1/2 + ... + 1/k, from k = 0.
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, len(queries) + 1))])
    reciprocal = (harmonic[before + same] - harmonic[before]) / same
    return SpanRanks(found=(before == 0) / same, reciprocal=reciprocal)


def span_retrieval_accuracy(encode: Encode, pairs: SpanPairs, block: int = 1024) -> float:
    """Return the share of queries whose most similar target is the right one; chance is 1 / n.

    # Parameters

    encode : a function from n texts to their embeddings `(n, d)`.
    pairs : queries and their targets.
    block : the number of queries to compare at a time.
    """
    ranks = span_ranks(encode(pairs.queries), encode(pairs.targets), block)
    return math.fsum(ranks.found) / len(ranks.found)
