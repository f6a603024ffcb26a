"""Whether a CPU gains anything by a dtype other than float32: measured, and kept.

What a processor says it can is not enough: it also matters what torch's kernels make of it. Without
instructions for them, int8 takes up to 50 times as long as float32, and bfloat16 5 to 30 times.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import cache

import torch

from declutr.kernel_choices import CHOICES, PLAIN, VARIABLE
from declutr.text_models.prepared_linear import PreparedLinear

logger = logging.getLogger(__name__)

KEEP = "DECLUTR_KEEP_DTYPE"
"""Set to 1, this variable of the environment keeps a dtype however slow it is."""

_IN, _OUT, _ROWS = 384, 1536, 256  # as in a small transformer: some milliseconds in float32
_TURNS, _HOPELESS = 4, 8.0


def worthwhile_dtype(name: str) -> str:
    """`name`, or `"float32"` where the CPU is not faster than in that; a warning says so.

    # Parameters

    name : `"bfloat16"` or `"int8"`.
    """
    if gains(name):
        return name
    seconds, in_float32 = measured(name, *_state())
    logger.warning(
        "%s gains nothing on this processor: a linear layer takes %.2f ms in %s and %.2f ms in "
        "float32. Embeddings are computed in float32 instead. With %s=1 in the environment they "
        "are computed in %s all the same.",
        *(name, 1000 * seconds, name, 1000 * in_float32, KEEP, name),
    )
    return "float32"


def gains(name: str) -> bool:
    """Whether a layer is faster in bfloat16 or int8 than in float32, or that dtype is kept.

    The answer is kept on disk (`declutr.kernel_choices`), unless that is switched off.
    """
    if os.environ.get(KEEP) == "1":
        return True
    if os.environ.get(VARIABLE) == PLAIN:
        seconds, in_float32 = measured(name, *_state())
        return seconds < in_float32
    state = " ".join(map(str, _state()))
    # Before the question: what these ask must not be asked while that is being answered.
    exact, other = _layer("float32"), _layer(name)
    rows = torch.ones(_ROWS, _IN)
    ways = {PLAIN: lambda: exact(rows), name: lambda: other(rows)}
    return CHOICES.quickest(f"{name} in the place of float32 ({state})", lambda: ways) == name


@cache
def measured(name: str, *state: object) -> tuple[float, float]:
    """Seconds that a linear layer takes in the dtype and in float32, the least of some turns.

    Both are computed as an encoder would (`declutr.text_models.prepared_linear`).

    # Parameters

    name : `"bfloat16"` or `"int8"`.
    state : what the result depends on; it is measured anew for another one.
    """
    exact, other = _layer("float32"), _layer(name)
    rows = torch.ones(_ROWS, _IN)
    times: list[list[float]] = [[], []]
    with torch.inference_mode():
        for turn in range(_TURNS + 1):
            seconds, in_float32 = _seconds(other, rows), _seconds(exact, rows)
            if turn:  # in the first one libraries get ready
                times[0].append(seconds)
                times[1].append(in_float32)
                if seconds > _HOPELESS * in_float32:
                    break
    return min(times[0]), min(times[1])


def _layer(dtype: str) -> PreparedLinear:
    with torch.random.fork_rng(devices=[]):
        linear = torch.nn.Linear(1, 1, bias=False)
    # Not drawn at random, which takes longer than all the rest.
    linear.weight = torch.nn.Parameter(torch.full((_OUT, _IN), 0.01))
    linear.in_features, linear.out_features = _IN, _OUT
    layer = PreparedLinear(linear, activation="gelu")
    layer.prepare(dtype)
    return layer


def _seconds(layer: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor) -> float:
    began = time.perf_counter()
    layer(rows)
    return time.perf_counter() - began


def _state() -> tuple[object, ...]:
    """What torch chooses its kernels by."""
    asked = ("_is_vnni_supported", "_is_avx512_vnni_supported", "_is_amx_tile_supported")
    has = tuple(bool(getattr(torch.cpu, question, bool)()) for question in asked)
    return (torch.get_num_threads(), torch.backends.mkldnn.enabled, *has)
