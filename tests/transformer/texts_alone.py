"""Attention over each text alone, with which attention over packed texts is compared."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

HEADS = 2


def inputs(
    lengths: Sequence[int], dtype: torch.dtype = torch.float64, width: int = 4
) -> list[Tensor]:
    """Return query, key and value `(1, H, T, D)` in the memory layout of transformers."""
    torch.manual_seed(0)
    shape = (1, sum(lengths), HEADS, width)
    return [torch.randn(shape).to(dtype).transpose(1, 2).requires_grad_() for _ in range(3)]


def one_by_one(tensors: Sequence[Tensor], lengths: Sequence[int], **options: float) -> Tensor:
    """Return attention over each text alone."""
    texts = zip(*(tensor.split(list(lengths), dim=2) for tensor in tensors), strict=True)
    return torch.cat([scaled_dot_product_attention(*text, **options) for text in texts], dim=2)


def assert_all_close(found: Sequence[Tensor], expected: Sequence[Tensor], **atol: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, **atol)
