"""How the spans of a document lie: to the document, and to each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

EIGHTHS = 8


def coverage(spans: np.ndarray, length: int, parts: int = EIGHTHS) -> np.ndarray:
    """The mean number of spans over a token, by equal parts of the document.

    Args:
        spans: ``(..., 2)``, half-open intervals of tokens.
        length: of the document, at least 1; parts need not be whole tokens.
        parts: how many.

    Returns:
        ``(parts,)`` float64. Its mean is the tokens of all spans over those of the document.
    """
    edges = np.linspace(0, length, parts + 1)
    starts, ends = np.asarray(spans).reshape(-1, 2, 1).swapaxes(0, 1)  # (S, 1) each
    shared = np.minimum(ends, edges[1:]) - np.maximum(starts, edges[:-1])  # (S, parts)
    return np.maximum(shared, 0).sum(axis=0) * (parts / length)


def view_kind(anchor: Sequence[int], span: Sequence[int]) -> str:
    """How `span` lies to `anchor`, both half-open ``[start, end)`` (figure 1B of the paper).

    Returns:
        "adjacent": they touch and share no token; "subsumed": the span lies inside the anchor, or
        equals it; "contains": the anchor lies strictly inside the span; "partial": each has tokens
        that the other has not; "disjoint": they do not even touch (never drawn by `SpanSampler`).

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
