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
    """Random numbers that decide what is dropped, and what is done by them.

    Two of the same seed draw the same numbers in turn.

    # Parameters

    probability : of a value to become zero, to within 1/131072.
    seed : as `draw_seed` gives it.

    # Attributes

    scale : what values that are kept have to be multiplied by for their mean to stay what it was.
    """

    def __init__(self, probability: float, seed: Tensor) -> None:
        self._dropped = round(probability * _LEVELS)  # of so many levels
        self._generator = np.random.SFC64(int(seed))
        kept = _LEVELS - self._dropped
        self.scale = _LEVELS / kept if kept else 0.0

    def draw(self, shape: torch.Size) -> Tensor:
        """Draw a random level for each value of this shape, int16."""
        size = shape.numel()
        words = self._generator.random_raw(-(-size // _PER_WORD))
        return torch.from_numpy(words.view(np.int16))[:size].view(shape)

    def zero(self, values: Tensor, levels: Tensor, out: Tensor) -> Tensor:
        """Return `out`: values where they are kept, not scaled, and zero where they are dropped.

        # Parameters

        values : contiguous, of any floating type.
        levels : drawn for this shape, `comparable` with these values.
        out : where to write it; may be `values`.
        """
        source, target = values, out
        if values.element_size() == 2:
            source, target = values.view(torch.int16), out.view(torch.int16)
        # The gradient of a threshold is what is needed here: values where levels are above it.
        # torch computes it with vectors, but not what goes by a mask of bool.
        threshold = self._dropped - _LEVELS // 2 - 1
        torch.ops.aten.threshold_backward.grad_input(source, levels, threshold, grad_input=target)
        return out


def comparable(levels: Tensor, values: Tensor) -> Tensor:
    """Return levels in the type in which `RepeatableDropout.zero` compares them for values."""
    return levels if values.element_size() == 2 else levels.to(values.dtype)


def draw_seed(probability: float) -> Tensor | None:
    """Draw, by torch's generator, what all numbers for a dropout follow from; `None` for none."""
    return torch.randint(1 << 62, ()) if probability * _LEVELS > 0.5 else None


def dropout(values: Tensor, probability: float) -> Tensor:
    """As `torch.nn.functional.dropout` of a tensor on the CPU, in training."""
    seed = draw_seed(probability)
    return values if seed is None else _Dropped.apply(values, probability, seed)


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, probability: float, seed: Tensor) -> Tensor:
        ctx.probability, ctx.seed = probability, seed
        return _drop(values, probability, seed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _drop(gradient, ctx.probability, ctx.seed), None, None  # drawn again, not kept


def _drop(values: Tensor, probability: float, seed: Tensor) -> Tensor:
    dropout = RepeatableDropout(probability, seed)
    dropped = torch.empty_like(values, memory_format=torch.contiguous_format)
    most = _VALUES_AT_ONCE * torch.get_num_threads()
    parts = (tensor.reshape(-1).split(most) for tensor in (values, dropped))
    for some, out in zip(*parts, strict=True):
        levels = comparable(dropout.draw(some.shape), some)
        dropout.zero(some, levels, out=out).mul_(dropout.scale)
    return dropped
