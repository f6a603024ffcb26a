"""How evenly the spans of a document cover it."""

from __future__ import annotations

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
