"""Runs of `allennlp train` in this process, from recipes, on made-up documents."""

from __future__ import annotations

import copy
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import torch
from allennlp.commands.train import TrainModel, train_model
from allennlp.common import Params
from allennlp.common.util import prepare_environment
from allennlp.training import TrainerCallback

import declutr
from benchmarks.gpu.findings import Settings
from benchmarks.gpu.models import texts
from benchmarks.reference import GRADIENT_NORM

_FILES = (Path(declutr.__file__).parent.parent / "training_config").rglob("*.jsonnet")
RECIPES = {file.stem: file for file in sorted(_FILES, key=lambda file: len(file.parts))}
"""Of the checkout that is measured, by name: those in folders hide their earlier paths."""


def recipe(
    settings: Settings, name: str, folder: Path, documents: Path, **changes: Any
) -> dict[str, Any]:
    """A recipe for documents and a saved transformer; `changes` are keys with `__` for dots."""
    os.environ["TRANSFORMER_MODEL"] = str(folder)
    overrides = {key.replace("__", "."): value for key, value in changes.items()}
    overrides |= {
        "train_data_path": str(documents),
        "trainer.cuda_device": 0 if settings.device == "cuda" else -1,
    }
    if settings.tiny:
        overrides |= {"dataset_reader.max_span_len": 60, "dataset_reader.min_span_len": 8}
        overrides |= {"data_loader.batch_size": 4}
    return Params.from_file(str(RECIPES[name]), json.dumps(overrides)).as_dict(quiet=True)


def documents(settings: Settings, count: int, words: int) -> Path:
    """A file of documents of so many words, one a line."""
    file = settings.work / f"documents-{count}-{words}.txt"
    if not file.exists():
        file.write_text("\n".join(texts([words] * count)) + "\n")
    return file


def train(config: dict[str, Any], folder: Path, recover: bool = False) -> Any:
    """`allennlp train`; the model."""
    return train_model(Params(copy.deepcopy(config)), str(folder), recover=recover)


def train_alone(config: dict[str, Any], folder: Path) -> None:
    """What `allennlp train` does but for the archive, which takes long to compress."""
    params = Params(copy.deepcopy(config))
    prepare_environment(params)
    TrainModel.from_params(params, serialization_dir=str(folder), local_rank=0).run()


@TrainerCallback.register("copy_of_run")
class CopyOfRun(TrainerCallback):
    """Copies the folder of a run after a step, as a kill at that moment would leave it; once."""

    looks_at_metrics = False  # the trainer "declutr" need not wait for them

    def __init__(self, serialization_dir: str, step: int, target: str) -> None:
        super().__init__(serialization_dir)
        self._step, self._target = step, target

    def on_batch(  # type: ignore[override]
        self,
        trainer: Any,
        batch_inputs: Any,
        batch_outputs: Any,
        batch_metrics: Any,
        epoch: int,
        batch_number: int,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if batch_number == self._step and not Path(self._target).exists():
            shutil.copytree(self.serialization_dir, self._target)


@TrainerCallback.register("against_bare_steps")
class AgainstBareSteps(TrainerCallback):
    """Times steps of the trainer, and after the run bare ones on the very same batches.

    # Parameters

    first, last : steps that are timed, the first left out; the host waits for the device at both,
        and nowhere in between.
    file : where the seconds go, as JSON.
    """

    looks_at_metrics = False  # the trainer "declutr" need not wait for them

    def __init__(self, serialization_dir: str, first: int, last: int, file: str) -> None:
        super().__init__(serialization_dir)
        self._first, self._last, self._file = first, last, Path(file)
        self._batches: list[dict[str, Any]] = []
        self._began = self._seconds = 0.0

    def on_batch(  # type: ignore[override]
        self,
        trainer: Any,
        batch_inputs: list[dict[str, Any]],
        batch_outputs: Any,
        batch_metrics: Any,
        epoch: int,
        batch_number: int,
        is_training: bool,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if not is_training:
            return
        if self._first < batch_number <= self._last:
            self._batches += batch_inputs
        if batch_number in (self._first, self._last):
            _synchronize()
            self._seconds = time.perf_counter() - self._began
            self._began = time.perf_counter()

    def on_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        trainer.model.train()
        for batch in self._batches[:3]:
            self._step(trainer, batch)
        _synchronize()
        began = time.perf_counter()
        for batch in self._batches:
            self._step(trainer, batch)
        _synchronize()
        bare = time.perf_counter() - began
        told = {"steps": len(self._batches), "trained": self._seconds, "bare": bare}
        self._file.write_text(json.dumps(told))

    def _step(self, trainer: Any, batch: dict[str, Any]) -> None:
        trainer.optimizer.zero_grad()
        trainer.model(**batch)["loss"].backward()
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), GRADIENT_NORM)
        trainer.optimizer.step()


def _synchronize() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
