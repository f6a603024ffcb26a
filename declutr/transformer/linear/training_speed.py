"""What a linear layer costs in training on this CPU, in float32 and in bfloat16."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from declutr.system.kernel_choices import CHOICES, Ways, kept_seconds
from declutr.system.processors import instructions
from declutr.transformer.linear.training_products import QuickProducts

FEATURES, ROWS = 512, 1024
"""Inputs and outputs of the layer that is measured, and tokens in a batch."""

FLOPS = 3 * 2 * ROWS * FEATURES * FEATURES
"""Of its forward and backward pass: three products, of multiplications and additions."""


def has_bfloat16() -> bool:
    """Return whether this CPU has instructions for products in bfloat16.

    Elsewhere torch emulates them, and takes longer than in float32.
    """
    return not {"avx512_bf16", "amx"}.isdisjoint(instructions())


def training_seconds() -> dict[str, float]:
    """Return the seconds of a layer's forward and backward pass in float32 and in bfloat16.

    In float32 by the kernels that training takes, in bfloat16 by autocast: as in a model that is
    trained. Measured for some milliseconds, once for a processor and number of threads.
    """
    with _choices_as_they_are():
        return kept_seconds(f"linear layer {FEATURES} to {FEATURES}, trained", _ways)


def _ways() -> Ways:
    with torch.inference_mode(False):
        shape = (FEATURES, FEATURES), (ROWS, FEATURES)
        weight, rows = (torch.full(s, 0.01, dtype=torch.float32, device="cpu") for s in shape)
    weight.requires_grad_()
    rows.requires_grad_()
    _train(rows, weight, False)  # what this asks is answered before it is timed
    return {
        "float32": partial(_train, rows, weight, False),
        "bfloat16": partial(_train, rows, weight, True),
    }


def _train(rows: torch.Tensor, weight: torch.Tensor, in_bfloat16: bool) -> None:
    with torch.inference_mode(False), torch.enable_grad():
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
