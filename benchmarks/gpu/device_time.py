"""Time on a device: by its own clock, how busy it was, and how often the host waited for it."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.flops import matrix_product, product_flops
from declutr import __file__ as _PACKAGE

# Not of the whole device: that is how the profiler's own calls wait.
_WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize")
# Spans that the profiler draws around what a device does, and are nothing it does.
_NO_WORK = (
    "Optimizer.",
    "ProfilerStep",
    "Torch-Compiled",
    "##",
    "Context Sync",
    "Stream ",
    "Event ",
)


def seconds_each(
    function: Callable[[], Any], device: str, rounds: int, inner: int = 1
) -> list[float]:
    """Seconds of one call in each of some rounds of `inner` calls, begun with an idle device."""
    taken = []
    for _ in range(rounds):
        if device == "cpu":
            began = time.perf_counter()
            for _ in range(inner):
                function()
            taken.append((time.perf_counter() - began) / inner)
            continue
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(inner):
            function()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end) / 1e3 / inner)
    return taken


def matrix_rate(device: str, tiny: bool, dtype: torch.dtype = torch.bfloat16) -> float:
    """Operations a second of large matrix products, now: the median of five."""
    size = 256 if tiny else None
    product = matrix_product(dtype, device, size)
    product()
    return product_flops(device, size) / sorted(seconds_each(product, device, 5))[2]


def peak_megabytes(device: str) -> float | None:
    """Highest memory of tensors since `torch.cuda.reset_peak_memory_stats`; None on a CPU."""
    return torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else None


def profiled(function: Callable[[], Any], device: str, calls: int = 2) -> dict[str, Any]:
    """What the profiler saw of some calls, by the call: columns of a table, and longest kernels.

    Nothing on a CPU.
    """
    if device == "cpu":
        return {}
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    # Without the operators of the host, which are many; CUDA's own calls are among these.
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(calls):
            function()
        torch.cuda.synchronize()
    events = [
        (event.name, event.time_range.start, event.time_range.end, "CUDA" in str(event.device_type))
        for event in seen.events()
        if not getattr(event, "is_user_annotation", False)
    ]
    return summary(events, calls)


def summary(events: Iterable[tuple[str, float, float, bool]], calls: int) -> dict[str, Any]:
    """By the call: busy seconds, launches, waits, copies that stop the host, longest kernels.

    Args:
        events: name, begin and end in microseconds, and whether it ran on the device.
        calls: how many calls they are of.
    """
    kernels: dict[str, float] = {}
    spans, waits, pageable = [], 0, 0
    for name, begin, end, on_device in events:
        if not on_device:
            waits += name in _WAITS
        elif not name.startswith(_NO_WORK):
            spans.append((begin, end))
            kernels[name[:90]] = kernels.get(name[:90], 0.0) + end - begin
            pageable += "Memcpy" in name and "Pageable" in name
    longest = sorted(kernels, key=lambda name: -kernels[name])[:12]
    return {
        "busy s": _covered(spans) / 1e6 / calls,
        "launches": len(spans) / calls,
        "waits": waits / calls,
        "pageable copies": pageable / calls,
        "longest kernels, ms": {name: kernels[name] / 1e3 / calls for name in longest},
    }


def _covered(spans: list[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def waiting_places(function: Callable[[], Any], device: str) -> dict[str, int]:
    """Where the host waits for the device in one call, by file and line; nothing on a CPU."""
    if device == "cpu":
        return {}
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            function()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    places = Counter(
        f"{_inside(warning.filename)}:{warning.lineno}"
        for warning in caught
        if "synchroniz" in str(warning.message).lower()
    )
    return dict(places.most_common())


def _inside(file: str) -> str:
    """A path from the package on, or the last parts of another."""
    path, package = Path(file), Path(_PACKAGE).parent
    if path.is_relative_to(package):
        return str(path.relative_to(package.parent))
    return "/".join(path.parts[-3:])
