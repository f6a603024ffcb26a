"""Arithmetic that objectives share: full precision, distances, reductions and a divergence."""

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

# Rounding leaves a squared distance between equal rows of up to this times their squared lengths.
_ROUNDING = 1e-13


def _lifted(value: Any) -> Any:
    """Return bfloat16 and float16 tensors as float32, and any other value unchanged."""
    narrow = isinstance(value, Tensor) and value.is_floating_point() and value.itemsize < 4
    return value.float() if narrow else value


def full_precision(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wrap a function so that it computes in float32 at least, even under autocast.

    Tensor arguments in bfloat16 and float16 are converted to float32. A similarity in bfloat16 has
    three significant digits, and a temperature of 0.05 multiplies its rounding error by twenty.
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
    """Scale the rows of `x` `(..., d)` to length 1; lengths below 1e-12 count as 1e-12."""
    return normalize(x, dim=-1, eps=1e-12)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return the squared distances `|x_i - y_j|^2` between all rows of `x` and all rows of `y`.

    They are computed as `|x|^2 + |y|^2 - 2xy` in float64: in float32 that difference of large
    numbers would lose its digits. Subtracting each row from each other row is ten times slower.

    # Parameters

    x, y : rows `(N, d)` and `(M, d)`.

    # Returns

    Distances `(N, M)` in the dtype of `x`.
    """
    squared, apart = _squared(x, y)
    return squared.where(apart, 0).to(x.dtype)


def euclidean_distances(x: Tensor, y: Tensor) -> Tensor:
    """Return the distances `|x_i - y_j|` between all rows of `x` and all rows of `y`.

    The distance between equal rows is 0, and its gradient is 0.

    # Parameters

    x, y : rows `(N, d)` and `(M, d)`.

    # Returns

    Distances `(N, M)` in the dtype of `x`.
    """
    squared, apart = _squared(x, y)
    # The gradient of a square root is infinite at 0, so the root is taken of 1 in its place.
    return squared.where(apart, 1).sqrt().where(apart, 0).to(x.dtype)


def _squared(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return squared distances in float64, and a mask of those above the rounding error of 0."""
    x, y = x.double(), y.double()
    lengths = x.pow(2).sum(dim=1, keepdim=True) + y.pow(2).sum(dim=1)  # (N, M)
    squared = lengths - 2 * x @ y.T
    return squared, squared > _ROUNDING * lengths


def off_diagonal(square: Tensor) -> Tensor:
    """Return all elements of a matrix `(N, N)` but the diagonal as `(N (N - 1),)`, row by row."""
    n = len(square)
    # In the flattened matrix every (n + 1)-th element, from the first on, is of the diagonal.
    return square.flatten()[1:].view(n - 1, n + 1)[:, :-1].flatten()


def same_label(labels: Tensor) -> Tensor:
    """Return a mask `(M, M)` of the pairs of rows with equal `labels` `(M,)`, diagonal included."""
    return labels.unsqueeze(1) == labels


def positive_pairs(labels: Tensor) -> Tensor:
    """Return a mask `(M, M)` of the pairs of different rows with equal `labels` `(M,)`."""
    return same_label(labels).fill_diagonal_(False)


def reduced(terms: Tensor, reduction: str, *inputs: Tensor) -> Tensor:
    """Return the mean or the sum of `terms` `(K,)`, or the terms themselves.

    The caller leaves out the terms of rows without a positive or a negative. If no term is left,
    mean and sum are zero with a gradient of zero to the `inputs`, so that the backward pass of a
    training step still works.

    # Parameters

    terms : the terms `(K,)` of a loss.
    reduction : `"mean"`, `"sum"` or `"none"`.
    inputs : the tensors that the loss was computed from.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    one_of("reduction", reduction, REDUCTIONS, ValueError)
    if reduction == "none":
        return terms
    if terms.numel() == 0:
        return nothing(*inputs)
    return terms.mean() if reduction == "mean" else terms.sum()


def reduced_where(kept: Tensor, terms: Tensor, reduction: str) -> Tensor:
    """Return the mean or the sum of the `terms` whose mask `kept` is true, or these terms.

    Mean and sum do not need the number of kept terms on the host, which would have to wait for it.

    # Parameters

    kept : a mask of the shape of `terms`.
    terms : the terms of a loss. Those that are not kept must be finite; their gradient is zero.
    reduction : `"mean"`, `"sum"` or `"none"`.

    # Raises

    `ValueError` : if the reduction is unknown.
    """
    if reduction not in ("mean", "sum"):
        return reduced(terms[kept], reduction)
    total = terms.where(kept, 0).sum()
    return total / kept.sum().clamp_min(1) if reduction == "mean" else total


def nothing(*inputs: Tensor) -> Tensor:
    """Return a scalar zero whose gradient to all `inputs` is defined, and zero."""
    return torch.stack([0 * x.sum() for x in inputs]).sum()


@full_precision
def jensen_shannon(logits_p: Tensor, logits_q: Tensor, reduction: str = "mean") -> Tensor:
    """Compute the Jensen-Shannon divergence of two predictions over C classes, in nats.

    The divergence is `KL(P || M) / 2 + KL(Q || M) / 2` with `M = (P + Q) / 2`. It is symmetric and
    lies in [0, log 2]. It is the consistency term of cutoff, between the predictions for a text and
    for the same text with parts cut out (Shen et al., 2020, section 3.3). The public code computes
    `KL(M || P) / 2 + KL(M || Q) / 2` instead, which has no upper bound.

    # Parameters

    logits_p, logits_q : scores `(N, C)`; `-inf` rules a class out.
    reduction : `"mean"`, `"sum"` or `"none"` over the N divergences.

    # Raises

    `ValueError` : if the predictions are not both `(N, C)` or the reduction is unknown.
    """
    if logits_p.shape != logits_q.shape or logits_p.dim() != 2:
        raise ValueError(
            "Expected two predictions (N, C) of the same shape, got "
            f"{tuple(logits_p.shape)} and {tuple(logits_q.shape)}."
        )
    # 0 * log 0 counts as 0, but 0 * -inf is not a number: a class that is ruled out gets a finite
    # logarithm instead, a quarter of the lowest so that sums do not overflow.
    log_p, log_q = (
        log_softmax(logits, dim=1).clamp_min(torch.finfo(logits.dtype).min / 4)
        for logits in (logits_p, logits_q)
    )
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    terms = log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)  # (N, C)
    return reduced(terms.sum(dim=1) / 2, reduction, logits_p, logits_q)


class HostCount:
    """An integer buffer of a module whose value the host knows too, such as a number of steps.

    The buffer is on the device of the model, and the host has to wait to read it. The host reads it
    once at first and once after the module has loaded a state. `advance` counts in both places.

    # Parameters

    module : the module that the buffer is registered with.
    buffer : the name of the buffer, a scalar that starts at 0.
    """

    def __init__(self, module: torch.nn.Module, buffer: str) -> None:
        module.register_buffer(buffer, torch.zeros((), dtype=torch.long))
        self._module, self._buffer = module, buffer
        self._value: int | None = None
        module.register_load_state_dict_post_hook(self._forget)

    @property
    def value(self) -> int:
        """The value of the buffer, as an integer of the host."""
        if self._value is None:
            self._value = int(getattr(self._module, self._buffer))
        return self._value

    def advance(self) -> None:
        """Add 1 to the value, on the host and in the buffer."""
        getattr(self._module, self._buffer).add_(1)
        if self._value is not None:
            self._value += 1

    def _forget(self, *_: Any) -> None:
        self._value = None
