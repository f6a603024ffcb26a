"""From the terms of a loss to a scalar."""

from __future__ import annotations

import torch

REDUCTIONS = ("mean", "sum", "none")


def reduced(terms: torch.Tensor, reduction: str, *inputs: torch.Tensor) -> torch.Tensor:
    """The mean or the sum of `terms` `(K,)`, or the terms themselves.

    Terms of rows without a positive or a negative are not among them. If none is left, mean and sum
    are `0 * inputs.sum()`: zero, with a gradient of zero, so that a training step goes through.

    # Raises

    `ValueError` : an unknown reduction.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(
            f"Unknown reduction '{reduction}': expected one of {', '.join(REDUCTIONS)}."
        )
    if reduction == "none":
        return terms
    if terms.numel() == 0:
        return nothing(*inputs)
    return terms.mean() if reduction == "mean" else terms.sum()


def reduced_where(kept: torch.Tensor, terms: torch.Tensor, reduction: str) -> torch.Tensor:
    """`reduced` of those `terms` `(K,)` of which `kept` `(K,)` is true, as if they were all.

    Mean and sum do without knowing how many these are, for which the host would have to wait.
    Terms that are not kept must be finite; they get a gradient of zero.

    # Raises

    `ValueError` : an unknown reduction.
    """
    if reduction not in ("mean", "sum"):
        return reduced(terms[kept], reduction)
    total = terms.where(kept, 0).sum()
    return total / kept.sum().clamp_min(1) if reduction == "mean" else total


def nothing(*inputs: torch.Tensor) -> torch.Tensor:
    """Zero, still connected to `inputs`."""
    return torch.stack([0 * x.sum() for x in inputs]).sum()
