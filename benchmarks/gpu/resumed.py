"""A run that was killed and goes on, against two that were not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import trained
from benchmarks.gpu.findings import Settings
from benchmarks.gpu.models import transformer

_STEPS, _SAVED, _KILLED = 8, 3, 5


def compared(settings: Settings) -> dict[str, Any]:
    """Weights at the end, at most apart. Two whole runs say what the device repeats by itself."""
    work = settings.work / "resumed"
    killed = work / "killed"
    config = trained.recipe(
        settings,
        "declutr",
        transformer(settings, "check"),
        trained.documents(settings, 4 * _STEPS, 300),
        **{"dataset_reader__max_span_len": 60, "dataset_reader__min_span_len": 8},
        data_loader__batch_size=4,
        trainer__checkpointer__save_every_num_batches=_SAVED,
    )
    copy = {"type": "copy_of_run", "step": _KILLED, "target": str(killed)}
    copied = {**config, "trainer": {**config["trainer"]}}
    copied["trainer"]["callbacks"] = [*config["trainer"]["callbacks"], copy]
    trained.train(copied, work / "whole")
    trained.train(config, work / "again")
    trained.train(config, killed, recover=True)
    whole, again, resumed = (_weights(work / name) for name in ("whole", "again", "killed"))
    repeated, distance = _apart(whole, again), _apart(whole, resumed)
    return {
        "weights apart": distance,
        "weights of two whole runs apart": repeated,
        "holds": distance <= 4 * repeated + 1e-7,
    }


def _weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "best.th", map_location="cpu", weights_only=True)


def _apart(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    return max(float((first[n].double() - second[n].double()).abs().max()) for n in first)
