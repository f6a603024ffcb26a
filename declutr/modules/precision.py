"""The dtype that the forward pass of training is computed in."""

import contextlib
import logging
from contextlib import AbstractContextManager
from functools import cache

import torch

from declutr.transformer.dtype_speed import GAIN, has_bfloat16, training_seconds

logger = logging.getLogger(__name__)


def training_precision(precision: str, device: torch.device) -> AbstractContextManager:
    """Return the context in which to compute a training loss.

    The choice of `"auto"` is logged once. On a CPU with bfloat16 instructions the log also says how
    much faster bfloat16 would be. If `"bfloat16"` is slower than float32 on this CPU, a warning
    says so once. An autocast that is already active, such as the trainer's `use_amp`, is not
    changed.

    # Parameters

    precision : `"bfloat16"`, `"float32"`, or `"auto"`, which is bfloat16 on GPUs that support it
        and float32 elsewhere.
    device : the device that the loss is computed on.
    """
    if torch.is_autocast_enabled(device.type):
        return contextlib.nullcontext()
    if precision == "bfloat16" and device.type == "cpu":
        _warn_if_slow()
    if precision == "bfloat16" or (precision == "auto" and _has_bfloat16(device.type)):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


@cache
def _has_bfloat16(device_type: str) -> bool:
    """Return whether `"auto"` is bfloat16 on a type of device, and log why."""
    if device_type == "cpu" and has_bfloat16():
        _tell_of_bfloat16()
        return False
    available = device_type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    logger.info(
        "Training in %s: precision is 'auto', and %s.",
        "bfloat16" if available else "float32",
        "the GPU computes in bfloat16" if available else f"this is a {device_type} without it",
    )
    return available


def _tell_of_bfloat16() -> None:
    """Log how much faster bfloat16 would be on this CPU, where `"auto"` is float32.

    `"auto"` does not choose by speed, because the weights of a run must not depend on the processor
    that it happens to run on.
    """
    seconds = training_seconds()
    if len(seconds) < 2:  # one dtype could not be timed, which must not fail the run
        return
    times = seconds["float32"] / seconds["bfloat16"]
    logger.info(
        "Training in float32: precision is 'auto', which is that on every CPU. This one computes "
        "in bfloat16, too: a linear layer's forward and backward takes %s. %s",
        _in_words(seconds),
        f'Set precision to "bfloat16" to train linear layers {times:.1f} times as fast.'
        if times >= GAIN
        else "That would be no gain.",
    )


@cache
def _warn_if_slow() -> None:
    """Warn if bfloat16, which the recipe asks for, is slower than float32 on this CPU."""
    seconds = training_seconds()
    if len(seconds) < 2:
        return
    times = seconds["bfloat16"] / seconds["float32"]
    if times >= GAIN:
        logger.warning(
            "precision is 'bfloat16', and this processor is slower in it: a linear layer's forward "
            'and backward takes %s, %.1f times as long. Set precision to "float32" to train '
            "faster, and more exactly.",
            _in_words(seconds),
            times,
        )


def _in_words(seconds: dict[str, float]) -> str:
    names = ("float32", "bfloat16")
    return " and ".join(f"{1000 * seconds[name]:.2f} ms in {name}" for name in names)
