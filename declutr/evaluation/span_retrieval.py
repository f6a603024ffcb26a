"""Label-free retrieval: does a span of a document find another span of it among all documents?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from declutr.sampling import DocumentTooShort, SpanSampler, document_rng

Encode = Callable[[list[str]], np.ndarray]


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


def span_retrieval_accuracy(encode: Encode, pairs: SpanPairs, block: int = 1024) -> float:
    """The share of queries whose most similar target, by cosine, is their own. Chance is 1 / n."""
    queries, targets = _unit(encode(pairs.queries)), _unit(encode(pairs.targets))  # (n, d)
    found = 0
    for start in range(0, len(queries), block):
        best = (queries[start : start + block] @ targets.T).argmax(axis=1)
        found += int((best == np.arange(start, start + len(best))).sum())
    return found / len(queries)


def _unit(embeddings: np.ndarray) -> np.ndarray:
    embeddings = np.asarray(embeddings, dtype=np.float64)
    return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True).clip(min=1e-12)
