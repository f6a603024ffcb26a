"""Whether a CPU gains anything by a dtype other than float32: measured, once a process.

What a processor says it can is not enough: it also matters what torch's kernels make of it. Without
instructions for them, int8 takes 20 to 50 times as long as float32, and bfloat16 5 to 30 times.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import cache

import torch

from declutr.text_models.prepared_linear import PreparedLinear

logger = logging.getLogger(__name__)

KEEP = "DECLUTR_KEEP_DTYPE"
"""Set to 1, this variable of the environment keeps a dtype however slow it is."""

_SLOW = 1.5  # times as long; what is near to even must not depend on what else the machine does
_IN, _OUT, _ROWS = 512, 1024, 128  # as in a small transformer: 1 ms in float32
_TURNS, _HOPELESS = 4, 8.0


def worthwhile_dtype(name: str) -> str:
    """`name`, or `"float32"` where the CPU is clearly faster in that; a warning says so.

    # Parameters

    name : `"bfloat16"` or `"int8"`.
    """
    if os.environ.get(KEEP) == "1":
        return name
    seconds, in_float32 = measured(name, *_state())
    if seconds <= _SLOW * in_float32:
        return name
    logger.warning(
        "%s is slow on this processor: a linear layer takes %.2f ms in %s and %.2f ms in float32, "
        "%.1f times as long. Embeddings are computed in float32 instead. With %s=1 in the "
        "environment they are computed in %s all the same.",
        *(name, 1000 * seconds, name, 1000 * in_float32, seconds / in_float32, KEEP, name),
    )
    return "float32"


@cache
def measured(name: str, *state: object) -> tuple[float, float]:
    """Seconds that a linear layer takes in the dtype and in float32, the least of some turns.

    # Parameters

    name : `"bfloat16"` or `"int8"`.
    state : what the result depends on; it is measured anew for another one.
    """
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        linear = torch.nn.Linear(1, 1, bias=False)
        # Not drawn at random, which takes longer than all the rest.
        linear.weight = torch.nn.Parameter(torch.full((_OUT, _IN), 0.01))
        rows = torch.ones(_ROWS, _IN)
        other = Int8Linear(linear) if name == "int8" else linear
        times: list[list[float]] = [[], []]
        for turn in range(_TURNS + 1):
            with torch.autocast("cpu", torch.bfloat16, enabled=name == "bfloat16"):
                seconds = _seconds(other, rows)
            in_float32 = _seconds(linear, rows)
            if turn:  # in the first one libraries get ready
                times[0].append(seconds)
                times[1].append(in_float32)
                if seconds > _HOPELESS * in_float32:
                    break
    return min(times[0]), min(times[1])


def _seconds(layer: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor) -> float:
    began = time.perf_counter()
    layer(rows)
    return time.perf_counter() - began


def _state() -> tuple[object, ...]:
    """What torch chooses its kernels by."""
    asked = ("_is_vnni_supported", "_is_avx512_vnni_supported", "_is_amx_tile_supported")
    has = tuple(bool(getattr(torch.cpu, question, bool)()) for question in asked)
    return (torch.get_num_threads(), torch.backends.mkldnn.enabled, *has)
