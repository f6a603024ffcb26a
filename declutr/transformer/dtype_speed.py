"""Measurements of whether a CPU is faster in bfloat16 or int8 than in float32.

They are taken for inference and for training, and kept on disk. It is not enough that a processor
has the instructions: torch must have fast kernels for them. Without either, int8 takes up to 50
times as long as float32, and bfloat16 5 to 30 times.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch

from declutr.system.kernel_choices import CHOICES, Ways, kept_seconds
from declutr.system.processors import instructions
from declutr.transformer.prepared_linear import PreparedLinear
from declutr.transformer.training_products import QuickProducts

logger = logging.getLogger(__name__)

KEEP = "DECLUTR_KEEP_DTYPE"
"""The environment variable that, set to 1, keeps a requested dtype however slow it is."""

GAIN = 1.1
"""The speedup over float32 below which a dtype of lower precision is not worth it."""

_IN, _OUT, _ROWS = 384, 1536, 256  # a layer of a small transformer: some milliseconds in float32

FLOPS = 2 * _ROWS * _IN * _OUT
"""The number of multiplications and additions in the layer that is measured for inference."""

TRAINED_FEATURES, _TRAINED_ROWS = 512, 1024

TRAINING_FLOPS = 3 * 2 * _TRAINED_ROWS * TRAINED_FEATURES * TRAINED_FEATURES
"""The number of multiplications and additions in the layer that is measured for training.

Its forward and backward pass compute three products.
"""


def has_bfloat16() -> bool:
    """Return whether this CPU has instructions for products in bfloat16.

    On other CPUs torch emulates them, and takes longer than in float32.
    """
    return not {"avx512_bf16", "amx"}.isdisjoint(instructions())


def worthwhile_dtype(name: str) -> str:
    """Return a dtype if it is at least a tenth faster than float32 on this CPU, else `"float32"`.

    In the second case a warning is logged.

    # Parameters

    name : `"bfloat16"` or `"int8"`.

    # Raises

    `ValueError` : `DECLUTR_KEEP_DTYPE` is neither 0 nor 1.
    """
    if gains(name):
        return name
    seconds = dtype_seconds()
    took = f"{1000 * seconds[name]:.2f} ms" if name in seconds else "no kernel of torch"
    logger.warning(
        "%s gains nothing on this processor: a linear layer takes %s in %s and %.2f ms in "
        "float32. Embeddings are computed in float32 instead. With %s=1 in the environment they "
        "are computed in %s all the same.",
        *(name, took, name, 1000 * seconds["float32"], KEEP, name),
    )
    return "float32"


def gains(name: str) -> bool:
    """Return whether a layer is at least a tenth faster in a dtype than in float32 on this CPU.

    With `DECLUTR_KEEP_DTYPE=1` in the environment the answer is always true.

    # Parameters

    name : `"bfloat16"` or `"int8"`.

    # Raises

    `ValueError` : `DECLUTR_KEEP_DTYPE` is neither 0 nor 1.
    """
    keep = os.environ.get(KEEP, "0") or "0"
    if keep not in ("0", "1"):
        raise ValueError(f"{KEEP}={keep} in the environment is not understood: expected 0 or 1.")
    if keep == "1":
        return True
    seconds = dtype_seconds()
    return name in seconds and seconds[name] * GAIN <= seconds["float32"]


def dtype_seconds() -> dict[str, float]:
    """Return the seconds that a linear layer takes in each dtype that this build of torch supports.

    The layer is prepared as in an encoder (`declutr.transformer.prepared_linear`). It is measured
    once for each processor and number of threads.
    """
    library = "" if torch.backends.mkldnn.enabled else ", without oneDNN"
    return kept_seconds(f"linear layer {_IN} to {_OUT} in each dtype, prepared{library}", _ways)


def _ways() -> Ways:
    rows = torch.ones(_ROWS, _IN)
    return {dtype: partial(_layer(dtype), rows) for dtype in ("float32", "bfloat16", "int8")}


def _layer(dtype: str) -> PreparedLinear:
    with torch.random.fork_rng(devices=[]):
        linear = torch.nn.Linear(1, 1, bias=False)
    # The weights are constant, because drawing them would take longer than all the rest.
    linear.weight = torch.nn.Parameter(torch.full((_OUT, _IN), 0.01))
    linear.in_features, linear.out_features = _IN, _OUT
    layer = PreparedLinear(linear, activation="gelu")
    layer.prepare(dtype)
    return layer


def training_seconds() -> dict[str, float]:
    """Return the seconds of a layer's forward and backward pass in float32 and in bfloat16.

    The layer is computed as in training: with the quickest kernels in float32, and under autocast
    in bfloat16. It is measured for some milliseconds, once for each processor and number of
    threads.
    """
    layer = f"linear layer {TRAINED_FEATURES} to {TRAINED_FEATURES}"
    with _choices_as_they_are():
        return kept_seconds(f"{layer}, trained", _ways_to_train)


def _ways_to_train() -> Ways:
    with torch.inference_mode(False):
        shapes = (TRAINED_FEATURES, TRAINED_FEATURES), (_TRAINED_ROWS, TRAINED_FEATURES)
        weight, rows = (torch.full(s, 0.01, dtype=torch.float32, device="cpu") for s in shapes)
    weight.requires_grad_()
    rows.requires_grad_()
    _train(rows, weight, False)  # chooses the kernels, which must happen before the timing
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
