"""Label-free retrieval: does a span of a document find another span of it among all documents?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from declutr.sampling.row_draws import document_rng
from declutr.sampling.spans import DocumentTooShort, SpanSampler
from declutr.system.vectors import unit_rows

Encode = Callable[[list[str]], np.ndarray]


ROUNDING = 1e-9
"""Cosines of equal vectors differ by less: products are summed in another order at the borders."""


class SpanPairs(NamedTuple):
    """Texts of which `queries[i]` and `targets[i]` come from the same document."""

    queries: list[str]
    targets: list[str]


def adjacent_span_pairs(
    documents: Sequence[str], min_words: int = 16, max_words: int = 64, seed: int = 0
) -> SpanPairs:
    """One pair of touching spans a document, which share no word of the text.

    The spans that training contrasts mostly overlap, and such a pair is found by its common words
    alone, with random weights too. Adjacent spans are the harder and fairer question.

    # Parameters

    documents : texts; those of fewer than `2 * max_words` words are left out.
    min_words, max_words : bounds of span lengths, in white-space separated words.
    seed : of the draw, which is the same for the same documents.

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
    """How each query did, `(n,)` each. Ties are shared: values are means over all orders of them,
    so that embeddings which are all the same are as good as chance."""

    found: np.ndarray
    """The chance that the most similar target is its own: 1 or 0 without ties."""
    reciprocal: np.ndarray
    """1 / rank of its own target."""


def span_ranks(queries: np.ndarray, targets: np.ndarray, block: int = 1024) -> SpanRanks:
    """Of queries `(n, d)` among targets `(n, d)` by cosine, where `targets[i]` is the right one."""
    queries, targets = (
        unit_rows(np.asarray(side, dtype=np.float64)) for side in (queries, targets)
    )
    above, tied = [], []
    for start in range(0, len(queries), block):
        cosines = queries[start : start + block] @ targets.T  # (b, n)
        ahead = cosines - np.diagonal(cosines, offset=start)[:, None]
        above.append((ahead > ROUNDING).sum(axis=1))
        tied.append((np.abs(ahead) <= ROUNDING).sum(axis=1))  # its own among them
    before, same = np.concatenate(above), np.concatenate(tied)
    # 1 + 1/2 + ... + 1/k, from k = 0
    harmonic = np.concatenate([[0], np.cumsum(1 / np.arange(1, len(queries) + 1))])
    return SpanRanks(
        found=(before == 0) / same,
        reciprocal=(harmonic[before + same] - harmonic[before]) / same,
    )


def span_retrieval_accuracy(encode: Encode, pairs: SpanPairs, block: int = 1024) -> float:
    """The share of queries whose most similar target, by cosine, is their own. Chance is 1 / n."""
    ranks = span_ranks(encode(pairs.queries), encode(pairs.targets), block)
    return math.fsum(ranks.found) / len(ranks.found)
