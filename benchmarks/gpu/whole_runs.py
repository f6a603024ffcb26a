"""Whole runs of `allennlp train` that must come out right: killed and resumed, and in float16."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from allennlp.training import Trainer

from benchmarks.gpu import trained
from benchmarks.gpu.findings import Settings
from benchmarks.gpu.models import transformer

_STEPS, _SAVED, _KILLED = 8, 3, 5


def trainers() -> list[str]:
    """AllenNLP's trainer, and that of this package where it has one."""
    known = Trainer.list_available()
    return [name for name in ("declutr", "gradient_descent") if name in known]


def resumed(settings: Settings, trainer: str) -> dict[str, Any]:
    """Weights at the end of a run that was killed, and of two whole ones, which say what the
    device repeats by itself."""
    work = settings.work / f"resumed-{trainer}"
    killed = work / "killed"
    copy = {"type": "copy_of_run", "step": _KILLED, "target": str(killed)}
    config = _config(settings, trainer, copy)
    config["trainer"]["checkpointer"]["save_every_num_batches"] = _SAVED
    trained.train(config, work / "whole")
    trained.train(config, work / "again")
    trained.train(config, killed, recover=True)
    whole, again, late = (_weights(work / name) for name in ("whole", "again", "killed"))
    repeated, distance = _apart(whole, again), _apart(whole, late)
    return {
        "weights apart": distance,
        "weights of two whole runs apart": repeated,
        "holds": distance <= 4 * repeated + 1e-7,
    }


def use_amp(settings: Settings, trainer: str) -> dict[str, Any]:
    """Training in float16 with a GradScaler."""
    if settings.device == "cpu":
        return {"skipped": "only on a GPU"}
    folder = settings.work / f"use_amp-{trainer}"
    config = _config(settings, trainer)
    config["trainer"]["use_amp"] = True
    trained.train(config, folder)
    loss = json.loads((folder / "metrics.json").read_text())["training_loss"]
    return {"training loss": loss, "holds": math.isfinite(loss)}


def _config(settings: Settings, trainer: str, *callbacks: dict[str, Any]) -> dict[str, Any]:
    config = trained.recipe(
        settings,
        "declutr",
        transformer(settings, "check"),
        trained.documents(settings, 4 * _STEPS, 300),
        dataset_reader__max_span_len=60,
        dataset_reader__min_span_len=8,
        data_loader__batch_size=4,
    )
    callbacks = (*config["trainer"]["callbacks"], *callbacks)
    config["trainer"] |= {"type": trainer, "callbacks": list(callbacks)}
    return config


def _weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "best.th", map_location="cpu", weights_only=True)


def _apart(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> float:
    return max(float((first[n].double() - second[n].double()).abs().max()) for n in first)
