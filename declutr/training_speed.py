"""What a linear layer costs in training on this CPU, in float32 and in bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from declutr.kept_timings import kept_timings
from declutr.kernel_choices import CHOICES, Ways, least_seconds
from declutr.linear_products import QuickProducts

FEATURES, ROWS = 512, 1024
"""Inputs and outputs of the layer that is measured, and tokens in a batch."""

FLOPS = 3 * 2 * ROWS * FEATURES * FEATURES
"""Of its forward and backward pass: three products, of multiplications and additions."""


def has_bfloat16() -> bool:
    """Return whether this CPU has instructions for products in bfloat16.

    Elsewhere torch emulates them, and takes longer than in float32.
    """
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in asked)


def training_seconds(anew: bool = False) -> dict[str, float]:
    """Return the seconds of a layer's forward and backward pass in float32 and in bfloat16.

    In float32 by the kernels that training takes, in bfloat16 by autocast: as in a model that is
    trained. Measured for some milliseconds, once for a processor and number of threads.

    # Parameters

    anew : measure even if it is known, and keep nothing.
    """
    with _choices_as_they_are():
        if anew:
            return least_seconds(_ways())
        return kept_timings(f"linear layer {FEATURES} to {FEATURES}, trained", _ways)


def _ways() -> Ways:
    weight = torch.full((FEATURES, FEATURES), 0.01, requires_grad=True)
    rows = torch.full((ROWS, FEATURES), 0.01, requires_grad=True)
    return {
        "float32": partial(_train, rows, weight, False),
        "bfloat16": partial(_train, rows, weight, True),
    }


def _train(rows: torch.Tensor, weight: torch.Tensor, in_bfloat16: bool) -> None:
    with torch.enable_grad():
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16), QuickProducts():
            output = torch.nn.functional.linear(rows, weight)
        output.backward(torch.ones_like(output), inputs=[rows, weight])
    rows.grad = weight.grad = None


@contextmanager
def _choices_as_they_are() -> Iterator[None]:
    """Leave no choice of kernels behind: a run records those for its own layers."""
    taken = CHOICES.taken()
    try:
        yield
    finally:
        CHOICES.forget()
        CHOICES.adopt(taken)
