"""What this GPU can do at best: what other numbers are compared with."""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks.gpu.device_time import matrix_rate, seconds_each
from benchmarks.gpu.findings import Findings, Settings

_STEP_SHAPES = ((24064, 768, 3072), (24064, 3072, 768), (24064, 768, 768), (1800, 768, 50265))
"""Products of a packed step of RoBERTa's width: feed-forward, projections, language modelling."""


def run(findings: Findings, settings: Settings) -> None:
    if settings.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        findings.check("memory, GB", lambda: {"measured": properties.total_memory / 1e9})
    for name in ("bfloat16", "float32"):
        findings.check(f"matrix products in {name}, TFLOP/s", _rate, settings, name)
    findings.check("matrix products in TF32, TFLOP/s", _tf32, settings)
    for shape in _STEP_SHAPES:
        name = f"matrix product {'x'.join(map(str, shape))} in bfloat16, TFLOP/s"
        findings.check(name, _product, settings, shape)
    findings.check("copy on the device, GB/s read and written", _copy, settings)
    findings.check("launch of a kernel by the host, us", _launch, settings)
    findings.check("wait for an idle device, us", _wait, settings)


def _rate(settings: Settings, name: str) -> dict[str, Any]:
    return {"measured": matrix_rate(settings.device, settings.tiny, getattr(torch, name)) / 1e12}


def _tf32(settings: Settings) -> dict[str, Any]:
    if settings.device == "cpu":
        return {"skipped": "only on a GPU"}
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return _rate(settings, "float32")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def _product(settings: Settings, shape: tuple[int, int, int]) -> dict[str, Any]:
    rows, inner, columns = (side // 32 for side in shape) if settings.tiny else shape
    a = torch.randn(rows, inner, device=settings.device).bfloat16()
    b = torch.randn(inner, columns, device=settings.device).bfloat16()
    torch.mm(a, b)
    seconds = sorted(seconds_each(lambda: a @ b, settings.device, 5, 10))[2]
    return {"measured": 2 * rows * inner * columns / seconds / 1e12}


def _copy(settings: Settings) -> dict[str, Any]:
    size = 1 << (20 if settings.tiny else 31)
    source = torch.ones(size, dtype=torch.uint8, device=settings.device)
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = sorted(seconds_each(lambda: target.copy_(source), settings.device, 5, 4))[2]
    return {"measured": 2 * source.numel() / seconds / 1e9}


def _launch(settings: Settings) -> dict[str, Any]:
    number, calls = torch.zeros(8, device=settings.device), 500
    number.add_(1).sum().item()
    began = time.perf_counter()
    for _ in range(calls):
        number.add_(1)
    return {"measured": (time.perf_counter() - began) / calls * 1e6}


def _wait(settings: Settings) -> dict[str, Any]:
    number, calls = torch.zeros(1, device=settings.device), 200
    number.item()
    began = time.perf_counter()
    for _ in range(calls):
        number.item()
    return {"measured": (time.perf_counter() - began) / calls * 1e6}
