"""What two views of the same things must look like."""

from __future__ import annotations

import torch


def check_views(first: torch.Tensor, second: torch.Tensor) -> None:
    """Row i of both belongs together.

    # Raises

    `ValueError` : they are not both `(N, d)`.
    """
    if first.shape != second.shape or first.dim() != 2:
        raise ValueError(
            "The two views must both be (N, d), row i of both belonging together; got "
            f"{tuple(first.shape)} and {tuple(second.shape)}."
        )


def check_width(rows: torch.Tensor, held: torch.Tensor) -> None:
    """Rows `(N, d)` fit those that are held, `(K, d)`.

    # Raises

    `ValueError` : they are of another width.
    """
    if rows.dim() != 2 or rows.size(1) != held.size(1):
        raise ValueError(
            f"Expected rows of width {held.size(1)} (embedding_size), got {tuple(rows.shape)}."
        )
