"""Checks of settings, of shapes, and of the values of tensors, which do not wait for the device."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

_Number = TypeVar("_Number", int, float)

_LONGEST = 250  # characters of a message that CUDA takes


def above_zero(name: str, value: _Number) -> _Number:
    """Return a setting if it is above 0.

    # Raises

    `ConfigurationError` : it is not.
    """
    if not value > 0:
        raise ConfigurationError(f"{name} must be above 0, got {value}.")
    return value


def at_least_zero(name: str, value: _Number) -> _Number:
    """Return a setting if it is 0 or above.

    # Raises

    `ConfigurationError` : it is not.
    """
    if not value >= 0:
        raise ConfigurationError(f"{name} must be 0 or above, got {value}.")
    return value


def one_of(
    name: str, value: str, known: Collection[str], error: type[Exception] = ConfigurationError
) -> str:
    """Return a setting if it is known.

    # Raises

    `ConfigurationError`, or another `error` : it is not.
    """
    if value not in known:
        raise error(f"Unknown {name} '{value}': expected one of {', '.join(known)}.")
    return value


def scalar_reduction(value: str) -> str:
    """Return `"mean"` or `"sum"`: an objective returns a scalar.

    # Raises

    `ConfigurationError` : another reduction.
    """
    return one_of("reduction", value, ("mean", "sum"))


def check_views(first: Tensor, second: Tensor, who: str = "The two views") -> None:
    """Check that two views are of the same shape, row i of both belonging together.

    # Raises

    `ValueError` : they are not both `(N, d)`.
    """
    if first.shape != second.shape or first.dim() != 2:
        raise ValueError(
            f"{who} must both be (N, d), row i of both belonging together; got "
            f"{tuple(first.shape)} and {tuple(second.shape)}."
        )


def check_width(rows: Tensor, held: Tensor) -> None:
    """Check that rows `(N, d)` fit those that are held, `(K, d)`.

    # Raises

    `ValueError` : they are of another width.
    """
    if rows.dim() != 2 or rows.size(1) != held.size(1):
        raise ValueError(
            f"Expected rows of width {held.size(1)} (embedding_size), got {tuple(rows.shape)}."
        )


def check_classes(labels: Tensor, count: int) -> None:
    """Check that labels `(count,)` are classes.

    # Raises

    `ValueError` : there is not one for each pair, or they are scores.
    """
    if labels.is_floating_point() or labels.shape != (count,):
        raise ValueError(
            f"Expected the class (int64) of each of the {count} pairs, got {labels.dtype} "
            f"{tuple(labels.shape)}. Scores are for 'cosine_regression'."
        )


def require(holds: Tensor, expected: str, values: Tensor | None = None, advice: str = "") -> None:
    """Check a condition on what tensors hold.

    A GPU checks it when it comes to it. If it does not hold, the error is printed, without the
    values, and the next call that waits for the GPU raises `RuntimeError` ("device-side assert
    triggered").

    # Parameters

    holds : a boolean scalar, on any device.
    expected : what was expected, or what went wrong.
    values : what there was instead.
    advice : what to do, a sentence.

    # Raises

    `ValueError` : on the CPU, if it does not hold.
    """
    if holds.device.type not in ("cpu", "cuda"):  # which lack such checks
        holds = holds.cpu()
    try:
        torch._assert_async(holds, f"{expected}. {advice}"[:_LONGEST])
    except RuntimeError as error:
        if holds.device.type != "cpu":
            raise
        found = "" if values is None else f", got {values.min():g} to {values.max():g}"
        raise ValueError(f"{expected}{found}. {advice}".rstrip()) from error
