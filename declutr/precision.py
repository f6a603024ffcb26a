"""In which precision the forward pass of training runs."""

from __future__ import annotations

import contextlib
import logging
from contextlib import AbstractContextManager
from functools import cache

import torch
from allennlp.common.checks import ConfigurationError

logger = logging.getLogger(__name__)

PRECISIONS = ("auto", "bfloat16", "float32")


def training_precision(precision: str, device: torch.device) -> AbstractContextManager:
    """The context to compute a training loss in.

    `"auto"` is bfloat16 on GPUs that have it and float32 elsewhere (said once in the log).
    An autocast that is already on, such as the trainer's `use_amp`, stays as it is.

    # Raises

    `ConfigurationError` : an unknown name.
    """
    require_precision(precision)
    if torch.is_autocast_enabled(device.type):
        return contextlib.nullcontext()
    if precision == "bfloat16" or (precision == "auto" and _has_bfloat16(device.type)):
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def require_precision(precision: str) -> None:
    """Raise a `ConfigurationError` unless it is one of `PRECISIONS`."""
    if precision not in PRECISIONS:
        raise ConfigurationError(
            f"Unknown precision '{precision}': expected one of {', '.join(PRECISIONS)}."
        )


@cache
def _has_bfloat16(device_type: str) -> bool:
    available = device_type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    logger.info(
        "Training in %s: precision is 'auto', and %s.",
        "bfloat16" if available else "float32",
        "the GPU computes in bfloat16" if available else f"this is a {device_type} without it",
    )
    return available
