"""A training step on the device: ours in several ways against the original recipe."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.flops import step_flops
from benchmarks.gpu.device_time import (
    matrix_rate,
    peak_megabytes,
    profiled,
    seconds_each,
    waiting_places,
)
from benchmarks.gpu.findings import Findings, Settings
from benchmarks.gpu.models import LARGE, SMALL, batches, model, step_of
from benchmarks.inputs import SHAPES, SpansBatch, build_model
from benchmarks.reference import GRADIENT_NORM, reference_loss, reference_optimizer

DOCUMENTS = 16  # a step of the recipe

BASELINE = "reference bfloat16, fused AdamW"
OURS = "ours bfloat16"
COMPILED = "ours bfloat16, compiled"


def run(findings: Findings, settings: Settings) -> None:
    documents = 4 if settings.tiny else DOCUMENTS
    given: dict[str, list[SpansBatch]] = {}
    base: dict[str, float | None] = {}
    for shape, name in _order(settings):
        if shape not in given:
            given[shape] = batches(settings, shape, documents)
        arguments = settings, shape, name, given[shape], base.get(shape)
        row = {"shape": shape, "step": name}
        found = findings.check(f"{shape}: {name}", _measured, *arguments, row=row)
        if name == BASELINE:
            base[shape] = found.get("s a step")


def _order(settings: Settings) -> list[tuple[str, str]]:
    """Shapes and ways, what takes longest last."""
    if settings.tiny:
        return [("check", name) for name in _WAYS if name != COMPILED or settings.device == "cuda"]
    return [
        *((LARGE, name) for name in (BASELINE, OURS)),
        *((SMALL, name) for name in (BASELINE, OURS)),
        *((LARGE, name) for name in _WAYS if name not in (BASELINE, OURS, COMPILED)),
        *((shape, COMPILED) for shape in (SMALL, LARGE)),
    ]


def _ours(
    settings: Settings, shape: str, given: list[SpansBatch], precision: str, **changes: Any
) -> Callable[[], Any]:
    module = model(settings, shape, dropout=0.1, precision=precision, **changes)
    return step_of(module, given, settings.device)


def _reference(
    settings: Settings,
    shape: str,
    given: list[SpansBatch],
    bfloat16: bool,
    fused: bool | None,
) -> Callable[[], Any]:
    """As `benchmarks.reference.reference_step`, but does not wait for the loss either."""
    module = build_model(shape, dropout=0.1).to(settings.device)
    optimizer = reference_optimizer(module, fused=fused)
    vocab_size = SHAPES[shape].vocab_size
    arguments = [
        (*b.masked(vocab_size), b.anchors_mask, b.positives, b.positives_mask)
        for b in (batch.to(settings.device) for batch in given)
    ]
    taken = 0

    def step() -> torch.Tensor:
        nonlocal taken
        optimizer.zero_grad(set_to_none=True)
        loss = reference_loss(module, *arguments[taken % len(arguments)], bfloat16=bfloat16)
        taken += 1
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), GRADIENT_NORM)
        optimizer.step()
        return loss.detach()

    return step


def _measured(
    settings: Settings,
    shape: str,
    name: str,
    given: list[SpansBatch],
    base: float | None,
) -> dict[str, Any]:
    device = settings.device
    step = _WAYS[name](settings, shape, given)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    for _ in range(3):
        loss = step()
    loss.item()
    warm_up = time.perf_counter() - began
    taken, rates = [], []
    for _ in range(1 if settings.tiny else 4):  # whole turns of the batches
        taken += seconds_each(step, device, 1, len(given))
        rates.append(matrix_rate(device, settings.tiny))
    seconds, rate = statistics.median(taken), statistics.median(rates)
    tokens = statistics.mean(batch.num_tokens for batch in given)
    flops = statistics.mean(step_flops(SHAPES[shape], batch) for batch in given)
    peak = peak_megabytes(device)
    seen, places = _looked_at(step, device, len(given))
    return {
        "s a step": seconds,
        "lowest": min(taken),
        "highest": max(taken),
        "useful tokens/s": tokens / seconds,
        f"speed, {BASELINE} = 1": base / seconds if base else 1.0 if name == BASELINE else None,
        "share of matrix rate": flops / seconds / rate,
        "GPU busy": seen["busy s"] / seconds if "busy s" in seen else None,
        "launches": seen.get("launches"),
        "waits": max(seen["waits"], sum(places.values())) if "waits" in seen else None,
        "pageable copies": seen.get("pageable copies"),
        "peak memory, MB": peak,
        "padding": statistics.mean(batch.padding for batch in given),
        "matrix rate then, TFLOP/s": rate / 1e12,
        "warm-up, s": warm_up,
        "longest kernels, ms": seen.get("longest kernels, ms"),
        "waits at": places,
        "profiler": seen.get("profiler"),
        "loss": loss.item(),
    }


def _looked_at(
    step: Callable[[], Any], device: str, calls: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """What the profiler saw, and where the host waited. Times stand without either."""
    try:
        return profiled(step, device, calls), waiting_places(step, device)
    except Exception as error:
        return {"profiler": f"{type(error).__name__}: {error}"}, {}


_WAYS: dict[str, Callable[[Settings, str, list[SpansBatch]], Callable[[], Any]]] = {
    BASELINE: partial(_reference, bfloat16=True, fused=True),
    OURS: partial(_ours, precision="bfloat16"),
    "reference bfloat16": partial(_reference, bfloat16=True, fused=None),
    "ours bfloat16, grouped": partial(
        _ours, precision="bfloat16", transformer={"unpadding": "grouped"}
    ),
    "ours bfloat16, padded": partial(
        _ours, precision="bfloat16", transformer={"unpadding": "none"}
    ),
    "ours float32": partial(_ours, precision="float32"),
    "reference float32": partial(_reference, bfloat16=False, fused=None),
    COMPILED: partial(_ours, precision="bfloat16", transformer={"compile": True}),
}
