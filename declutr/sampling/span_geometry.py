"""The geometry of spans: how they cover a document, and how a span lies relative to an anchor."""

from collections.abc import Sequence

import numpy as np

EIGHTHS = 8
"""The default number of parts that a document is divided into."""


def coverage(spans: np.ndarray, length: int, parts: int = EIGHTHS) -> np.ndarray:
    """Return the mean number of spans that cover a token, for equal parts of the document.

    Args:
        spans: half-open intervals of tokens, ``(..., 2)``.
        length: the length of the document in tokens, at least 1. It need not be a multiple of the
            number of parts.
        parts: the number of parts.

    Returns:
        Means ``(parts,)`` in float64. The mean over all parts is the number of tokens in all spans
        divided by the number of tokens in the document.
    """
    edges = np.linspace(0, length, parts + 1)
    starts, ends = np.asarray(spans).reshape(-1, 2, 1).swapaxes(0, 1)  # (S, 1) each
    shared = np.minimum(ends, edges[1:]) - np.maximum(starts, edges[:-1])  # (S, parts)
    return np.maximum(shared, 0).sum(axis=0) * (parts / length)


def view_kind(anchor: Sequence[int], span: Sequence[int]) -> str:
    """Name how a span lies relative to an anchor (DeCLUTR, ACL 2021, figure 1B).

    >>> view_kind((10, 20), (20, 25)), view_kind((10, 20), (12, 15))
    ('adjacent', 'subsumed')

    Args:
        anchor, span: half-open intervals ``[start, end)``.

    Returns:
        "adjacent" if the two touch and share no token; "subsumed" if the span lies inside the
        anchor or equals it; "contains" if the anchor lies strictly inside the span; "partial" if
        they overlap and each has tokens that the other has not; "disjoint" if they do not touch,
        which `SpanSampler` never draws.

    Raises:
        ValueError: if one of the two is empty.
    """
    (start, end), (begin, stop) = anchor, span
    for name, low, high in (("anchor", start, end), ("span", begin, stop)):
        if low >= high:
            raise ValueError(f"the {name} [{low}, {high}) is empty: its end must exceed its start.")
    if stop < start or begin > end:
        return "disjoint"
    if stop == start or begin == end:
        return "adjacent"
    if start <= begin and stop <= end:
        return "subsumed"
    if begin <= start and end <= stop:
        return "contains"
    return "partial"
