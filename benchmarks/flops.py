"""How much arithmetic a step needs, and how much of it a machine can do."""

from __future__ import annotations

from collections.abc import Callable

import torch

from benchmarks.inputs import Shape, SpansBatch

_SIZES = {"cpu": 4096, "cuda": 8192}
_PRODUCTS = 4  # long enough for a clock


def step_flops(shape: Shape, batch: SpansBatch, mlm_share: float = 0.15) -> float:
    """Floating-point operations of forward and backward over the tokens that are not padding.

    Products of matrices only (two operations for a multiplication and its addition): projections
    and feed-forward layers of every token, attention within each span, and the language modelling
    head on masked tokens. The backward pass takes twice as many as the forward pass.
    """
    width = shape.hidden_size
    anchors = batch.anchors_mask.sum(dim=1)
    lengths = torch.cat([anchors, batch.positives_mask.sum(dim=1)])
    forward = forward_flops(shape.layers, width, shape.intermediate_size, lengths)
    predicted = mlm_share * float(anchors.sum() - 2 * len(anchors))
    head = 2 * predicted * (width**2 + width * shape.vocab_size)
    return 3 * (forward + head)


def forward_flops(layers: int, width: int, inner: int, lengths: torch.Tensor) -> float:
    """Floating-point operations of a transformer's layers over texts without padding.

    Args:
        layers: how many.
        width: of hidden states.
        inner: the width inside feed-forward layers.
        lengths: tokens of each text, `(n,)`.
    """
    lengths = lengths.double()
    dense = 2 * float(lengths.sum()) * (4 * width**2 + 2 * width * inner)
    attention = 4 * width * float((lengths**2).sum())
    return layers * (dense + attention)


def matrix_product(
    dtype: torch.dtype, device: str, size: int | None = None
) -> Callable[[], torch.Tensor]:
    """A product of large square matrices: as fast as arithmetic gets on this machine."""
    size = size or _SIZES[device]
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))

    def product() -> torch.Tensor:
        for _ in range(_PRODUCTS - 1):
            left @ right
        return left @ right

    return product


def product_flops(device: str, size: int | None = None) -> float:
    """Operations of one call of `matrix_product`."""
    return _PRODUCTS * 2.0 * (size or _SIZES[device]) ** 3
