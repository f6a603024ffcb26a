"""Checks of settings, shapes and tensor values, none of which makes the host wait for a GPU."""

from collections.abc import Collection
from typing import TypeVar

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

_Number = TypeVar("_Number", int, float)

_LONGEST = 250  # CUDA takes assertion messages of up to about this many characters.


def above_zero(name: str, value: _Number) -> _Number:
    """Return `value`, the setting called `name`, if it is above 0.

    # Raises

    `ConfigurationError` : if `value` is 0, negative, or not a number.
    """
    if not value > 0:
        raise ConfigurationError(f"{name} must be above 0, got {value}.")
    return value


def at_least_zero(name: str, value: _Number) -> _Number:
    """Return `value`, the setting called `name`, if it is 0 or above.

    # Raises

    `ConfigurationError` : if `value` is negative or not a number.
    """
    if not value >= 0:
        raise ConfigurationError(f"{name} must be 0 or above, got {value}.")
    return value


def one_of(
    name: str, value: str, known: Collection[str], error: type[Exception] = ConfigurationError
) -> str:
    """Return `value`, the setting called `name`, if it is one of the `known` values.

    # Raises

    `error`, by default `ConfigurationError` : if `value` is not known.
    """
    if value not in known:
        raise error(f"Unknown {name} '{value}': expected one of {', '.join(known)}.")
    return value


def scalar_reduction(value: str) -> str:
    """Return the reduction `value` if it gives a scalar, as an objective must.

    # Raises

    `ConfigurationError` : if `value` is neither `"mean"` nor `"sum"`.
    """
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
