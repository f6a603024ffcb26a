"""Alignment and uniformity of embeddings on the unit sphere (Wang & Isola, 2020)."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import normalize


def alignment(x: torch.Tensor, y: torch.Tensor, alpha: float = 2) -> torch.Tensor:
    """Mean of |x_i - y_i|^alpha over positive pairs; 0 is perfect, 4 the worst for alpha 2.

    `x` and `y` are raw `(N, d)`; they are L2-normalised here.
    """
    x, y = normalize(x, dim=-1), normalize(y, dim=-1)
    return (x - y).norm(dim=-1).pow(alpha).mean()


def uniformity(x: torch.Tensor, t: float = 2, block: int = 4096) -> torch.Tensor:
    """Logarithm of the mean of exp(-t |x_i - x_j|^2) over distinct pairs; lower is more uniform.

    `x` is raw `(N, d)`, N >= 2, and is L2-normalised here. 0 when all rows point the same way, -4t
    at the least. Computed in blocks of rows, so that memory grows with N only.

    # Raises

    `ValueError` : fewer than two rows.
    """
    n = x.size(0)
    if n < 2:
        raise ValueError(f"Uniformity needs at least two embeddings, got {n}.")
    x = normalize(x, dim=-1)
    sums = []
    for start in range(0, n, block):
        rows = x[start : start + block]  # (b, d)
        squared = (2 - 2 * rows @ x.T).clamp_min(0)  # (b, n): |a - b|^2 = 2 - 2ab for unit vectors
        index = torch.arange(rows.size(0), device=x.device)
        self_pair = torch.zeros_like(squared, dtype=torch.bool)
        self_pair[index, start + index] = True
        sums.append((-t * squared).masked_fill(self_pair, -math.inf).logsumexp(dim=1))
    return torch.cat(sums).logsumexp(dim=0) - math.log(n * (n - 1))
