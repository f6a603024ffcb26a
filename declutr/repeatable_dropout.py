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
_VALUES_AT_ONCE = 1 << 16  # for each thread: what is drawn for them stays in the cache of a core


class RepeatableDropout:
    """Dropout whose random numbers follow from one number drawn for all of them.

    # Parameters

    probability : of a value to become zero, to within 1/131072.
    seed : that number, as `draw_seed` gives it.

    # Attributes

    scale : what values that are kept have to be multiplied by for their mean to stay what it was.
    """

    def __init__(self, probability: float, seed: Tensor | None) -> None:
        self._dropped = round(probability * _LEVELS)  # of so many levels
        self._seed = 0 if seed is None else int(seed)
        kept = _LEVELS - self._dropped
        self.scale = _LEVELS / kept if kept else 0.0

    def generator(self) -> np.random.SFC64:
        """Return what random numbers are drawn from; every one draws the same."""
        return np.random.SFC64(self._seed)

    def draw(self, generator: np.random.SFC64, shape: torch.Size) -> Tensor | None:
        """Draw a random level for each value of this shape, int16; `None` keeps everything."""
        if not self._dropped:
            return None
        size = shape.numel()
        words = generator.random_raw(-(-size // _PER_WORD))
        return torch.from_numpy(words.view(np.int16))[:size].view(shape)

    @staticmethod
    def comparable(levels: Tensor, values: Tensor) -> Tensor:
        """Return levels in the type in which `zero` compares them for such values."""
        return levels if values.element_size() == 2 else levels.to(values.dtype)

    def zero(self, values: Tensor, levels: Tensor | None, out: Tensor) -> Tensor:
        """Return values where they are kept, not scaled, and zero where they are dropped.

        # Parameters

        values : contiguous, of any floating type; returned as they are without `levels`.
        levels : drawn for this shape, `comparable` for these values.
        out : where to write it; may be `values`.
        """
        if levels is None:
            return values
        source, target = values, out
        if values.element_size() == 2:
            source, target = values.view(torch.int16), out.view(torch.int16)
        # The gradient of a threshold is what is needed here: values where levels are above it.
        # torch computes it with vectors, but not what goes by a mask of bool.
        threshold = self._dropped - _LEVELS // 2 - 1
        torch.ops.aten.threshold_backward.grad_input(source, levels, threshold, grad_input=target)
        return out


def draw_seed(probability: float) -> Tensor | None:
    """What random numbers for this probability follow from; `None` drops nothing."""
    return torch.randint(1 << 62, ()) if probability * _LEVELS > 0.5 else None


def dropout(values: Tensor, probability: float) -> Tensor:
    """As `torch.nn.functional.dropout` of a tensor on the CPU, in training."""
    seed = draw_seed(probability)
    if seed is None:
        return values
    return _Dropped.apply(values, RepeatableDropout(probability, seed))


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, dropout: RepeatableDropout) -> Tensor:
        ctx.dropout = dropout
        return _drop(values, dropout)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _drop(gradient, ctx.dropout), None  # drawn again, not kept


def _drop(values: Tensor, dropout: RepeatableDropout) -> Tensor:
    generator = dropout.generator()
    dropped = torch.empty_like(values, memory_format=torch.contiguous_format)
    most = _VALUES_AT_ONCE * torch.get_num_threads()
    parts = (tensor.reshape(-1).split(most) for tensor in (values, dropped))
    for some, out in zip(*parts, strict=True):
        torch.mul(some, dropout.scale, out=out)
        levels = dropout.draw(generator, some.shape)
        if levels is not None:
            dropout.zero(out, dropout.comparable(levels, out), out=out)
    return dropped
