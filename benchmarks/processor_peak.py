"""The processor's peak: the fastest that large products of matrices get in each dtype."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch.nn.functional import linear

_SIZES = (1024, 2048)
_SECONDS = 0.5  # for each way to multiply


def measure(threads: int) -> dict[str, list]:
    """Gigaflops a second of square products, and the way that gave them, by dtype.

    The best of several turns of every way that this torch has; int8 is accumulated in int32 and,
    where the operator scales, handed out in float32.

    Args:
        threads: of torch.
    """
    torch.set_num_threads(threads)
    best: dict[str, list] = {}
    with torch.inference_mode():
        for size in _SIZES:
            for dtype, ways in _products(size).items():
                for name, product in ways.items():
                    try:
                        seconds = _shortest(product)
                    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
                        continue  # not in this torch, or not on this processor
                    rate = 2 * size**3 / seconds / 1e9
                    if rate > best.get(dtype, [0.0])[0]:
                        best[dtype] = [rate, name]
    return best


def _products(size: int) -> dict[str, dict[str, Callable[[], object]]]:
    """Ways to multiply, by dtype and name."""
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator) for _ in range(2))
    halves = left.bfloat16(), right.bfloat16()
    whole = [(40 * matrix).round().clamp(-127, 127).to(torch.int8) for matrix in (left, right)]
    return {
        "float32": {
            "F.linear": lambda: linear(left, right),
            "mkldnn._linear_pointwise": lambda: _pointwise(left, right),
        },
        "bfloat16": {
            "F.linear": lambda: linear(*halves),
            "mkldnn._linear_pointwise": lambda: _pointwise(*halves),
        },
        "int8": {
            "torch._int_mm": lambda: torch._int_mm(whole[0], whole[1].t()),
            "onednn.qlinear_pointwise": _quantized(whole[0], whole[1]),
        },
    }


def _pointwise(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")


def _quantized(left: torch.Tensor, right: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A product with weights packed once."""
    size = len(left)
    scales, zeros = torch.full((size,), 0.01), torch.zeros(size, dtype=torch.int32)
    unsigned = (left.int() + 128).to(torch.uint8)
    packed: list[torch.Tensor] = []

    def product() -> torch.Tensor:
        if not packed:
            packed.append(torch.ops.onednn.qlinear_prepack(right, [size, size]))
        return torch.ops.onednn.qlinear_pointwise(
            unsigned, 0.01, 128, packed[0], scales, zeros, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip

    return product


def _shortest(product: Callable[[], object]) -> float:
    """Seconds of the fastest call, after one that is left out."""
    product()
    begun, shortest = time.perf_counter(), float("inf")
    while time.perf_counter() - begun < _SECONDS:
        start = time.perf_counter()
        product()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest
