"""Full precision and reductions of objectives, and checks of their settings and tensors.

None of the checks makes the host wait for a GPU.
"""

import math
from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor
from torch.nn.functional import normalize, threshold

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Number = TypeVar("_Number", int, float)

REDUCTIONS = ("mean", "sum", "none")
_SHORTEST = 1e-12  # a length that has a direction
_LONGEST = 250  # CUDA takes assertion messages of up to about this many characters.


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
    """Scale the rows of `x` `(..., d)` to length 1; lengths below 1e-12 count as 1e-12.

    A row that is so short has no direction, and gets no gradient. That of torch's `normalize` is
    1e12 times the others there, so that clipping would leave nothing of the others. The result must
    not be changed in place, and has no forward-mode derivative.
    """
    return _Unit.apply(x)


class _Unit(torch.autograd.Function):
    """Rows scaled to length 1, whose backward pass has half of the kernels of torch's own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return normalize(x, dim=-1, eps=_SHORTEST)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        x, scaled = ctx.saved_tensors
        # Lengths are computed from x again, so that second derivatives exist. Short rows are
        # divided by infinity, for a gradient of 0.
        lengths = threshold(torch.linalg.vector_norm(x, dim=-1, keepdim=True), _SHORTEST, math.inf)
        along = (gradient * scaled).sum(dim=-1, keepdim=True)
        return torch.addcmul(gradient, scaled, along, value=-1) / lengths


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


def above_zero(name: str, value: _Number) -> _Number:
    """Return `value`, the setting called `name`, or raise `ConfigurationError` if not above 0."""
    if not value > 0:
        raise ConfigurationError(f"{name} must be above 0, got {value}.")
    return value


def at_least_zero(name: str, value: _Number) -> _Number:
    """Return `value`, the setting called `name`, or raise `ConfigurationError` if below 0."""
    if not value >= 0:
        raise ConfigurationError(f"{name} must be 0 or above, got {value}.")
    return value


def one_of(
    name: str, value: str, known: Collection[str], error: type[Exception] = ConfigurationError
) -> str:
    """Return `value`, the setting called `name`, or raise `error` if it is none of the known."""
    if value not in known:
        raise error(f"Unknown {name} '{value}': expected one of {', '.join(known)}.")
    return value


def scalar_reduction(value: str) -> str:
    """Return the reduction `value`, or raise `ConfigurationError` if it gives no scalar."""
    return one_of("reduction", value, ("mean", "sum"))


def check_views(first: Tensor, second: Tensor, who: str = "The two views") -> None:
    """Check that two views are matrices of the same shape `(N, d)`.

    # Parameters

    first, second : the views, of which row i of both belongs together.
    who : what the error message calls them.

    # Raises

    `ValueError` : if the views are not both `(N, d)`.
    """
    if first.shape != second.shape or first.dim() != 2:
        raise ValueError(
            f"{who} must both be (N, d), row i of both belonging together; got "
            f"{tuple(first.shape)} and {tuple(second.shape)}."
        )


def check_width(rows: Tensor, held: Tensor) -> None:
    """Check that `rows` `(N, d)` are as wide as the stored vectors `held` `(K, d)`.

    # Raises

    `ValueError` : if `rows` is not a matrix of that width.
    """
    if rows.dim() != 2 or rows.size(1) != held.size(1):
        raise ValueError(
            f"Expected rows of width {held.size(1)} (embedding_size), got {tuple(rows.shape)}."
        )


def check_classes(labels: Tensor, count: int) -> None:
    """Check that `labels` are the integer classes `(count,)` of `count` pairs.

    # Raises

    `ValueError` : if there is not one label for each pair, or if labels are scores (floats).
    """
    if labels.is_floating_point() or labels.shape != (count,):
        raise ValueError(
            f"Expected the class (int64) of each of the {count} pairs, got {labels.dtype} "
            f"{tuple(labels.shape)}. Scores are for 'cosine_regression'."
        )


def require(holds: Tensor, expected: str, values: Tensor | None = None, advice: str = "") -> None:
    """Raise if a condition on the values of tensors does not hold, without waiting for a GPU.

    A GPU checks the condition asynchronously. If it does not hold, CUDA prints the error, without
    the values, and the next call that waits for the GPU raises `RuntimeError` ("device-side assert
    triggered").

    # Parameters

    holds : the condition, a boolean scalar on any device.
    expected : what was expected, or what went wrong.
    values : the values that were found, of which the message names the smallest and the largest.
    advice : a sentence that says what to do.

    # Raises

    `ValueError` : if the condition does not hold and `holds` is on the CPU.
    """
    if holds.device.type not in ("cpu", "cuda"):  # Other devices have no asynchronous assertions.
        holds = holds.cpu()
    try:
        torch._assert_async(holds, f"{expected}. {advice}"[:_LONGEST])
    except RuntimeError as error:
        if holds.device.type != "cpu":
            raise
        found = "" if values is None else f", got {values.min():g} to {values.max():g}"
        raise ValueError(f"{expected}{found}. {advice}".rstrip()) from error
