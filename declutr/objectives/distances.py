"""Distances and similarities of all pairs of rows, in memory quadratic in their number."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize

from declutr.objectives.full_precision import full_precision

# Relative to the squared lengths of two rows: what rounding leaves of the distance of equal rows.
_ROUNDING = 1e-13


@full_precision
def unit(x: torch.Tensor) -> torch.Tensor:
    """Rows of `x` `(..., d)` scaled to length 1; a length below 1e-12 counts as 1e-12."""
    return normalize(x, dim=-1, eps=1e-12)


def squared_distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """|x_i - y_j|^2 of rows `(N, d)` and `(M, d)`, as `(N, M)` in the dtype of `x`.

    From |x|^2 + |y|^2 - 2xy in float64, where that difference of large numbers keeps the digits of
    float32; subtracting row from row instead is ten times slower.
    """
    return _squared(x, y).to(x.dtype)


def euclidean_distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """|x_i - y_j| of rows `(N, d)` and `(M, d)`, as `(N, M)`; of equal rows 0 with gradient 0."""
    squared = _squared(x, y)
    apart = squared > 0
    # The root of zero has no gradient: it is never taken.
    return squared.where(apart, 1).sqrt().where(apart, 0).to(x.dtype)


def _squared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x, y = x.double(), y.double()
    lengths = x.pow(2).sum(dim=1, keepdim=True) + y.pow(2).sum(dim=1)  # (N, M)
    squared = lengths - 2 * x @ y.T
    return squared.where(squared > _ROUNDING * lengths, 0)


def same_label(labels: torch.Tensor) -> torch.Tensor:
    """Which rows share a label: `(M, M)` of booleans for labels `(M,)`, the diagonal included."""
    return labels.unsqueeze(1) == labels


def positive_pairs(labels: torch.Tensor) -> torch.Tensor:
    """Which other rows share a label: as `same_label`, the diagonal left out."""
    return same_label(labels).fill_diagonal_(False)
