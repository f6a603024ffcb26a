"""Rows of a matrix scaled to length 1."""

from __future__ import annotations

import numpy as np


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Return rows `(n, d)` of length 1; a length below 1e-12 counts as 1e-12, so zeros stay."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(min=1e-12)
