"""In which precision the forward pass of training runs."""

from __future__ import annotations

import contextlib
import logging
from contextlib import AbstractContextManager
from functools import cache

import torch

from declutr.system.kernel_choices import GAIN
from declutr.transformer.dtype_speed import has_bfloat16, training_seconds

logger = logging.getLogger(__name__)


def training_precision(precision: str, device: torch.device) -> AbstractContextManager:
    """The context to compute a training loss in.

    `"auto"` is bfloat16 on GPUs that have it and float32 elsewhere (said once in the log, on a CPU
    that computes in bfloat16 with what that would gain). A warning tells once if a CPU is slower
    in the bfloat16 that was asked for.

    An autocast that is already on, such as the trainer's `use_amp`, stays as it is.
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
    """Whether `"auto"` is bfloat16 on such a device; the log says so, and why."""
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
    """Say what bfloat16 would gain on this CPU, where `"auto"` is float32 all the same.

    Weights of a run must not depend on the processor that it happens to get.
    """
    seconds = training_seconds()
    if len(seconds) < 2:  # one of them could not be computed, which is no matter of this run
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
    """Warn of bfloat16 on a CPU that is slower in it; it was asked for, and is not changed."""
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
    return " and ".join(
        f"{1000 * seconds[name]:.2f} ms in {name}" for name in ("float32", "bfloat16")
    )
