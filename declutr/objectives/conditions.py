"""Checks of the values of tensors that do not synchronise with the device."""

from __future__ import annotations

import torch

_LONGEST = 250  # characters of a message that CUDA takes


def require(
    holds: torch.Tensor,
    expected: str,
    values: torch.Tensor | None = None,
    advice: str = "",
) -> None:
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
