"""Precision, distances, reductions and divergence: the arithmetic that objectives share."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, normalize

from declutr.objectives.checks import one_of

_P = ParamSpec("_P")
_T = TypeVar("_T")

REDUCTIONS = ("mean", "sum", "none")

# Relative to the squared lengths of two rows: what rounding leaves of the distance of equal rows.
_ROUNDING = 1e-13


def _lifted(value: Any) -> Any:
    """Return a floating tensor narrower than float32 as float32, anything else as it is."""
    narrow = isinstance(value, Tensor) and value.is_floating_point() and value.itemsize < 4
    return value.float() if narrow else value


def full_precision(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a loss ignore autocast, and see bfloat16 and float16 arguments as float32.

    Similarities in bfloat16 have three digits, which a temperature of 0.05 multiplies by twenty.
    """

    @wraps(function)
    def computed(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        values = [*args, *kwargs.values()]
        device = next((v.device.type for v in values if isinstance(v, Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            lifted: Any = [_lifted(value) for value in args]
            named: Any = {name: _lifted(value) for name, value in kwargs.items()}
            return function(*lifted, **named)

    return computed


@full_precision
def unit(x: Tensor) -> Tensor:
    """Scale rows of `x` `(..., d)` to length 1; a length below 1e-12 counts as 1e-12."""
    return normalize(x, dim=-1, eps=1e-12)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j|^2 of rows `(N, d)` and `(M, d)`, as `(N, M)` in the dtype of `x`.

    From |x|^2 + |y|^2 - 2xy in float64, where that difference of large numbers keeps the digits of
    float32; subtracting row from row instead is ten times slower.
    """
    squared, apart = _squared(x, y)
    return squared.where(apart, 0).to(x.dtype)


def euclidean_distances(x: Tensor, y: Tensor) -> Tensor:
    """|x_i - y_j| of rows `(N, d)` and `(M, d)`, as `(N, M)`; of equal rows 0 with gradient 0."""
    squared, apart = _squared(x, y)
    # The root of zero has no gradient: it is never taken.
    return squared.where(apart, 1).sqrt().where(apart, 0).to(x.dtype)


def _squared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squares in float64, and which of them are more than rounding leaves of 0."""
    x, y = x.double(), y.double()
    lengths = x.pow(2).sum(dim=1, keepdim=True) + y.pow(2).sum(dim=1)  # (N, M)
    squared = lengths - 2 * x @ y.T
    return squared, squared > _ROUNDING * lengths


def off_diagonal(square: Tensor) -> Tensor:
    """All but the diagonal of `(N, N)`, N above 0: `(N (N - 1),)`, row after row."""
    n = len(square)
    # The diagonal stands at every (n + 1)-th place, from the first on.
    return square.flatten()[1:].view(n - 1, n + 1)[:, :-1].flatten()


def same_label(labels: Tensor) -> Tensor:
    """Which rows share a label: `(M, M)` of booleans for labels `(M,)`, the diagonal included."""
    return labels.unsqueeze(1) == labels


def positive_pairs(labels: Tensor) -> Tensor:
    """Which other rows share a label: as `same_label`, the diagonal left out."""
    return same_label(labels).fill_diagonal_(False)


def reduced(terms: Tensor, reduction: str, *inputs: Tensor) -> Tensor:
    """Return the mean or the sum of `terms` `(K,)`, or the terms themselves.

    Terms of rows without a positive or a negative are not among them. If none is left, mean and sum
    are `0 * inputs.sum()`: zero, with a gradient of zero, so that a training step goes through.

    # Raises

    `ValueError` : an unknown reduction.
    """
    one_of("reduction", reduction, REDUCTIONS, ValueError)
    if reduction == "none":
        return terms
    if terms.numel() == 0:
        return nothing(*inputs)
    return terms.mean() if reduction == "mean" else terms.sum()


def reduced_where(kept: Tensor, terms: Tensor, reduction: str) -> Tensor:
    """Return `reduced` of those `terms` `(K,)` of which `kept` `(K,)` is true, as if they were all.

    Mean and sum do without knowing how many these are, for which the host would have to wait.
    Terms that are not kept must be finite; they get a gradient of zero.

    # Raises

    `ValueError` : an unknown reduction.
    """
    if reduction not in ("mean", "sum"):
        return reduced(terms[kept], reduction)
    total = terms.where(kept, 0).sum()
    return total / kept.sum().clamp_min(1) if reduction == "mean" else total


def nothing(*inputs: Tensor) -> Tensor:
    """Return zero, still connected to `inputs`."""
    return torch.stack([0 * x.sum() for x in inputs]).sum()


@full_precision
def jensen_shannon(logits_p: Tensor, logits_q: Tensor, reduction: str = "mean") -> Tensor:
    """`KL(P || M) / 2 + KL(Q || M) / 2` in nats, `M = (P + Q) / 2`; in [0, log 2], symmetric.

    The consistency term of cutoff (Shen et al., 2020, section 3.3), between what is predicted for a
    text and for the same text cut. The public code computes `KL(M || P) / 2 + KL(M || Q) / 2`,
    which has no upper bound.

    # Parameters

    logits_p, logits_q : `(N, C)`, scores of C classes; `-inf` rules a class out.
    reduction : of the N divergences: `"mean"`, `"sum"` or `"none"`.

    # Raises

    `ValueError` : other shapes; an unknown reduction.
    """
    if logits_p.shape != logits_q.shape or logits_p.dim() != 2:
        raise ValueError(
            "Expected two predictions (N, C) of the same shape, got "
            f"{tuple(logits_p.shape)} and {tuple(logits_q.shape)}."
        )
    # 0 * log 0 is 0: a class that is ruled out gets the lowest finite logarithm.
    log_p, log_q = (
        log_softmax(logits, dim=1).clamp_min(torch.finfo(logits.dtype).min / 4)
        for logits in (logits_p, logits_q)
    )
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    terms = log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)  # (N, C)
    return reduced(terms.sum(dim=1) / 2, reduction, logits_p, logits_q)


class HostCount:
    """An integer buffer whose value the host knows as well, such as the number of steps done.

    The buffer lies on the device of the model, where to read it makes the host wait. It is read
    once at first, and once after the module was given another state; from then on `advance` keeps
    up with what the module does to it.

    # Parameters

    module : the module.
    buffer : the name of its buffer, a scalar, 0 at first.
    """

    def __init__(self, module: torch.nn.Module, buffer: str) -> None:
        module.register_buffer(buffer, torch.zeros((), dtype=torch.long))
        self._module, self._buffer = module, buffer
        self._value: int | None = None
        module.register_load_state_dict_post_hook(self._forget)

    @property
    def value(self) -> int:
        """The value of the buffer."""
        if self._value is None:
            self._value = int(getattr(self._module, self._buffer))
        return self._value

    def advance(self) -> None:
        """Count one more, in the buffer too."""
        getattr(self._module, self._buffer).add_(1)
        if self._value is not None:
            self._value += 1

    def _forget(self, *_: Any) -> None:
        self._value = None
