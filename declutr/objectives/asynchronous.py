"""What goes to a device without the host's waiting for it: values drawn on the host, conditions."""

from __future__ import annotations

from collections.abc import Callable

import torch

_LONGEST = 250  # characters of a message that CUDA takes


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """`tensor`, which lies on the host, on `device`; through page-locked memory to a GPU."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def require(
    holds: torch.Tensor, message: str, got: Callable[[], str] = lambda: ""
) -> None:
    """Check a condition on what tensors hold.

    A GPU checks it when it comes to it. If it does not hold, `message` is printed, and the next
    call that waits for the GPU raises a `RuntimeError` ("device-side assert triggered").

    # Parameters

    holds : a boolean scalar, on any device.
    message : what was expected, and what to do.
    got : adds what there was instead, on the CPU.

    # Raises

    `ValueError` : it does not hold, on the CPU.
    """
    if holds.device.type not in ("cpu", "cuda"):  # which lack such checks
        holds = holds.cpu()
    try:
        torch._assert_async(holds, message[:_LONGEST])
    except RuntimeError as error:
        if holds.device.type != "cpu":
            raise
        raise ValueError(f"{message}{got()}") from error
