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
    squared, apart = _squared(x, y)
    return squared.where(apart, 0).to(x.dtype)


def euclidean_distances(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """|x_i - y_j| of rows `(N, d)` and `(M, d)`, as `(N, M)`; of equal rows 0 with gradient 0."""
    squared, apart = _squared(x, y)
    # The root of zero has no gradient: it is never taken.
    return squared.where(apart, 1).sqrt().where(apart, 0).to(x.dtype)


def _squared(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The squares in float64, and which of them are more than rounding leaves of 0."""
    x, y = x.double(), y.double()
    lengths = x.pow(2).sum(dim=1, keepdim=True) + y.pow(2).sum(dim=1)  # (N, M)
    squared = lengths - 2 * x @ y.T
    return squared, squared > _ROUNDING * lengths


def off_diagonal(square: torch.Tensor) -> torch.Tensor:
    """All but the diagonal of `(N, N)`, N above 0: `(N (N - 1),)`, row after row."""
    n = len(square)
    # The diagonal stands at every (n + 1)-th place, from the first on.
    return square.flatten()[1:].view(n - 1, n + 1)[:, :-1].flatten()


def same_label(labels: torch.Tensor) -> torch.Tensor:
    """Which rows share a label: `(M, M)` of booleans for labels `(M,)`, the diagonal included."""
    return labels.unsqueeze(1) == labels


def positive_pairs(labels: torch.Tensor) -> torch.Tensor:
    """Which other rows share a label: as `same_label`, the diagonal left out."""
    return same_label(labels).fill_diagonal_(False)
