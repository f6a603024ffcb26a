"""`allennlp train` from end to end against the bare step on the same batches."""

from __future__ import annotations

import json
import time
from typing import Any

import torch

from benchmarks.gpu import trained
from benchmarks.gpu.device_time import peak_megabytes
from benchmarks.gpu.findings import Findings, Settings
from benchmarks.gpu.models import LARGE, SMALL, transformer
from benchmarks.gpu.whole_runs import trainers


def run(findings: Findings, settings: Settings) -> None:
    for shape in ["check"] if settings.tiny else [SMALL, LARGE]:
        for trainer in trainers():
            row = {"shape": shape, "trainer": trainer}
            findings.check(f"{shape}, {trainer}", _measured, settings, shape, trainer, row=row)


def _measured(settings: Settings, shape: str, trainer: str) -> dict[str, Any]:
    steps = 12 if settings.tiny else 40
    first = steps // 4
    file = settings.work / f"seconds-{shape}-{trainer}.json"
    documents, words = (4, 300) if settings.tiny else (16, 2200)  # a step, and of a document
    texts = trained.documents(settings, steps * documents, words)
    config = trained.recipe(settings, "declutr", transformer(settings, shape), texts)
    clock = {"type": "against_bare_steps", "first": first, "last": steps, "file": str(file)}
    config["trainer"] |= {"type": trainer, "callbacks": [*config["trainer"]["callbacks"], clock]}
    if settings.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    trained.train_alone(config, settings.work / f"run-{shape}-{trainer}")
    whole = time.perf_counter() - began
    told = json.loads(file.read_text())
    return {
        "s a step": told["trained"] / told["steps"],
        "bare step, s": told["bare"] / told["steps"],
        "rate of the bare step": told["bare"] / told["trained"],
        "steps": told["steps"],
        "peak memory, MB": peak_megabytes(settings.device),
        "all with loading, s": whole,
    }
