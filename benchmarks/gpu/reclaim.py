"""RECLAIM beside a task: a step with its term against the task alone."""

from __future__ import annotations

import importlib.util
from typing import Any

from benchmarks.gpu.findings import Findings, Settings
from benchmarks.reclaim import WHOLE_BANK, timings
from benchmarks.timing import ratio

EXACT, HALF = "float32 in memory, exact", "float16 in memory, exact"
APPROXIMATE = "float16 on disk, approximate"


def run(findings: Findings, settings: Settings) -> None:
    """Of SST-2's training set and of MNLI's; all of a bank at a time is too slow for the second."""
    indexed = (APPROXIMATE,) if importlib.util.find_spec("faiss") else ()
    sizes = {67_349: (EXACT, HALF, WHOLE_BANK, *indexed), 392_702: (EXACT, HALF, *indexed)}
    if settings.tiny:
        sizes = {12_000: sizes[67_349]}
    for instances, banks in sizes.items():
        for bank in banks:
            row = {"bank": bank, "instances": instances}
            name = f"{bank}, {instances:,}"
            findings.check(name, _measured, settings, bank, instances, row=row)


def _measured(settings: Settings, bank: str, instances: int) -> dict[str, Any]:
    (alone, beside, term), recall = timings(
        shape="mini" if settings.tiny else "roberta_base",
        batch=8 if settings.tiny else 32,
        tokens=32 if settings.tiny else 128,
        instances=instances,
        negatives=100,
        threads=1 if settings.tiny else 16,
        device=settings.device,
        bank=bank,
        rounds=2 if settings.tiny else 10,
    )
    over = ratio(beside, alone)
    return {
        "ms a step, task alone": 1000 * alone.median,
        "ms a step, with RECLAIM": 1000 * beside.median,
        "time, task alone = 1": over.median,
        "lowest": over.lowest,
        "highest": over.highest,
        "ms of the term by itself": 1000 * term.median,
        "recall of the nearest": recall,
    }
