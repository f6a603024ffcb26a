"""Dropout on a CPU at a tenth of the cost, which can be repeated without keeping its masks.

torch draws a random number for each value, one after another, which on a CPU takes longer than the
layer before the dropout. Here one 64-bit number decides about four values. The numbers follow from
a seed that torch's generator draws, so `torch.manual_seed` and restoring the state of that
generator repeat them.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_LEVELS = 1 << 16  # the number of different random levels that decide what is kept
_PER_WORD = 4
_VALUES_AT_ONCE = 1 << 16  # per thread: the random numbers for so many fit the cache of a core


class RepeatableDropout:
    """A source of random levels that decide which values are dropped.

    Two objects with the same seed draw the same levels in the same order.

    # Parameters

    probability : the probability of a value to become zero, rounded to a multiple of 1/65536.
    seed : a seed drawn by `draw_seed`.

    # Attributes

    scale : the factor by which to multiply the values that are kept, to preserve the mean.
    """

    def __init__(self, probability: float, seed: Tensor) -> None:
        self._dropped = round(probability * _LEVELS)  # the number of levels that mean "dropped"
        self._generator = np.random.SFC64(int(seed))
        kept = _LEVELS - self._dropped
        self.scale = _LEVELS / kept if kept else 0.0

    def draw(self, shape: torch.Size) -> Tensor:
        """Draw a random level for each value of a tensor of this shape, int16."""
        size = shape.numel()
        words = self._generator.random_raw(-(-size // _PER_WORD))
        return torch.from_numpy(words.view(np.int16))[:size].view(shape)

    def zero(self, values: Tensor, levels: Tensor, out: Tensor) -> Tensor:
        """Set the dropped values to zero, without scaling the others, and return `out`.

        # Parameters

        values : a contiguous tensor of any floating-point dtype.
        levels : levels drawn for its shape, converted by `comparable`.
        out : where to write the result; may be `values`.
        """
        source, target = values, out
        if values.element_size() == 2:
            source, target = values.view(torch.int16), out.view(torch.int16)
        # The gradient of a threshold keeps the values whose levels are above it, as is needed here.
        # torch vectorizes this function, but not those that take a bool mask.
        threshold = self._dropped - _LEVELS // 2 - 1
        torch.ops.aten.threshold_backward.grad_input(source, levels, threshold, grad_input=target)
        return out

    @staticmethod
    def comparable(levels: Tensor, values: Tensor) -> Tensor:
        """Return levels in the dtype that `RepeatableDropout.zero` needs for these values."""
        return levels if values.element_size() == 2 else levels.to(values.dtype)


def draw_seed(probability: float) -> Tensor | None:
    """Draw a seed for `RepeatableDropout` by torch's generator.

    Returns a scalar, int64, or `None` if the probability rounds to 0 and nothing is dropped.
    """
    return torch.randint(1 << 62, ()) if probability * _LEVELS > 0.5 else None


def dropout(values: Tensor, probability: float) -> Tensor:
    """Apply dropout to a tensor on the CPU, like `torch.nn.functional.dropout` in training.

    # Parameters

    values : a tensor of any shape and floating-point dtype.
    probability : the probability of a value to become zero.
    """
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
        return _drop(gradient, ctx.probability, ctx.seed), None, None  # the levels are drawn again


def _drop(values: Tensor, probability: float, seed: Tensor) -> Tensor:
    dropout = RepeatableDropout(probability, seed)
    dropped = torch.empty_like(values, memory_format=torch.contiguous_format)
    most = _VALUES_AT_ONCE * torch.get_num_threads()
    parts = (tensor.reshape(-1).split(most) for tensor in (values, dropped))
    for some, out in zip(*parts, strict=True):
        levels = dropout.comparable(dropout.draw(some.shape), some)
        dropout.zero(some, levels, out=out).mul_(dropout.scale)
    return dropped
