"""Mean and covariance of embeddings that come in blocks."""

from __future__ import annotations

import numpy as np

ROWS = 4096
"""Converted to float64 at a time."""


class WhiteningError(ValueError):
    """Embeddings that cannot be whitened, or a file that does not hold a whitening."""


class Moments:
    """Count, mean and scatter of rows that come in blocks.

    Blocks are merged as by Chan, Golub and LeVeque (1983): nothing is cancelled, however far the
    mean lies from 0.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = np.zeros(0)
        self.scatter = np.zeros((0, 0))  # the sum of (x - mean) (x - mean)'

    def add(self, block: np.ndarray) -> None:
        if block.ndim != 2:
            raise WhiteningError(f"Got embeddings {block.shape}, expected (n, d).")
        if self.count and block.shape[1] != len(self.mean):
            raise WhiteningError(
                f"Got embeddings of {block.shape[1]} dimensions after others of {len(self.mean)}."
            )
        for start in range(0, len(block), ROWS):
            self._add(block[start : start + ROWS].astype(np.float64))

    def _add(self, rows: np.ndarray) -> None:
        if not np.isfinite(rows).all():
            raise WhiteningError(
                f"Got embeddings that are not finite, within the {len(rows)} rows after "
                f"{self.count}. Expected numbers: the model, or a text, is broken."
            )
        if not self.count:
            self.mean, self.scatter = np.zeros(rows.shape[1]), np.zeros((rows.shape[1],) * 2)
        count = self.count + len(rows)
        mean = rows.mean(axis=0)
        centred = rows - mean
        apart = mean - self.mean
        self.scatter += centred.T @ centred
        self.scatter += np.outer(apart, apart) * (self.count * len(rows) / count)
        self.mean = self.mean + apart * (len(rows) / count)
        self.count = count
