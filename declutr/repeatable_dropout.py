"""Dropout on a CPU for a tenth of the price, which can be repeated without keeping its masks.

torch draws a number for every value, one after another; on a CPU that takes longer than the
layer whose output is dropped. Here one 64-bit number decides about four values, and the numbers
follow from a seed that torch's generator draws: `torch.manual_seed`, and whoever saves and
restores that generator's state, repeat them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_LEVELS = 1 << 16  # of the random numbers that decide what is kept
_PER_WORD = 4


class RepeatableDropout:
    """Dropout whose masks follow from one number drawn for all of them.

    # Parameters

    probability : of a value to become zero, to within 1/131072.
    seed : that number, as `draw_seed` gives it.
    """

    def __init__(self, probability: float, seed: Tensor | None) -> None:
        self._dropped = round(probability * _LEVELS)  # of so many levels
        self._seed = 0 if seed is None else int(seed)
        kept = _LEVELS - self._dropped
        self._scale = _LEVELS / kept if kept else 0.0

    def generator(self) -> np.random.Generator:
        """What the masks are drawn from; every one draws the same masks."""
        return np.random.Generator(np.random.SFC64(self._seed))

    def kept(self, generator: np.random.Generator, shape: torch.Size) -> Tensor | None:
        """What is not dropped, as a mask of this shape; `None` for everything."""
        if not self._dropped:
            return None
        size = shape.numel()
        words = generator.integers(1 << 64, size=-(-size // _PER_WORD), dtype=np.uint64)
        levels = torch.from_numpy(words.view(np.int16))[:size].view(shape)  # in [-32768, 32768)
        return levels >= self._dropped - _LEVELS // 2

    def __call__(self, values: Tensor, kept: Tensor | None) -> Tensor:
        """`values` where they are kept, scaled so that their mean stays what it was."""
        if kept is None:
            return values
        # values * kept * scale in one pass; it is its own derivative.
        return torch.ops.aten.native_dropout_backward(values, kept, self._scale)


def draw_seed(probability: float) -> Tensor | None:
    """What masks of this probability follow from, by torch's generator; `None` drops nothing."""
    return torch.randint(1 << 62, ()) if probability * _LEVELS > 0.5 else None


def dropout(values: Tensor, probability: float) -> Tensor:
    """As `torch.nn.functional.dropout` of a tensor on the CPU, in training."""
    return _Dropped.apply(values, RepeatableDropout(probability, draw_seed(probability)))


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dropout: RepeatableDropout) -> Tensor:
        kept = dropout.kept(dropout.generator(), values.shape)
        ctx.dropout = dropout
        ctx.save_for_backward(kept)
        return dropout(values, kept)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return ctx.dropout(gradient, kept), None
