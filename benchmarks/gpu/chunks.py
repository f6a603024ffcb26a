"""Gradient caching: batches far larger than memory would hold at once."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.gpu.device_time import peak_megabytes, seconds_each
from benchmarks.gpu.findings import Findings, Settings
from benchmarks.gpu.models import SMALL, batches, model, step_of

_PLAIN, _CHUNK = 16, 32
_SECONDS_A_DOCUMENT = 0.01  # guessed before anything is measured


def run(findings: Findings, settings: Settings) -> None:
    shape = "check" if settings.tiny else SMALL
    plain, chunk = (2, 2) if settings.tiny else (_PLAIN, _CHUNK)
    found = findings.check(f"{plain} documents", _measured, settings, shape, plain, None, None)
    base = found.get("ms a document")
    for documents in (8, 16) if settings.tiny else (512, 4096):
        name = f"{documents} documents"
        # Gradient caching runs the encoder forward twice.
        expected = 1.5 * documents * (base / 1000 if base else _SECONDS_A_DOCUMENT)
        if expected > findings.left:
            findings.check(name, lambda: {"skipped": "no time left"})
            continue
        found = findings.check(name, _measured, settings, shape, documents, chunk, base)


def _measured(
    settings: Settings, shape: str, documents: int, chunk: int | None, base: float | None
) -> dict[str, Any]:
    device = settings.device
    module = model(settings, shape, dropout=0.1, precision="bfloat16", chunk_size=chunk)
    # Small steps first: they make the optimizer's moments, and load the kernels.
    small = batches(settings, shape, chunk or documents, 2)
    step = step_of(module, [*small, *batches(settings, shape, documents, 1)], device)
    for _ in small:
        step()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    (seconds,) = seconds_each(step, device, 1)
    return {
        "documents a step": documents,
        "at a time": chunk or documents,
        "s a step": seconds,
        "ms a document": 1000 * seconds / documents,
        "time a document, plain = 1": 1000 * seconds / documents / base if base else 1.0,
        "peak memory, MB": peak_megabytes(device),
    }
