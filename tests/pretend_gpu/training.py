"""Training runs through AllenNLP's trainer on the pretend GPU, a few batches long."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from allennlp.commands.train import TrainModel
from allennlp.common import Params
from allennlp.models import Model
from allennlp.training import GradientDescentTrainer, TrainerCallback

from .device import CUDA
from .waits import Record


class FirstBatches:
    """The first batches of a data loader, which is otherwise as it was."""

    def __init__(self, loader: Any, batches: int) -> None:
        self._loader, self._batches = loader, batches

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        """The class of the loader, which callbacks look at."""
        return type(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return itertools.islice(iter(self._loader), self._batches)

    def __len__(self) -> int:
        return min(len(self._loader), self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class StepRecords(TrainerCallback):
    """What each training step did, and the fetching of its batch.

    Losses are kept as the trainer gives them.
    """

    looks_at_metrics = False  # or the trainer "declutr" would read them for it

    def __init__(self, serialization_dir: str, record: Record, device: torch.device) -> None:
        super().__init__(serialization_dir)
        self._record, self._device = record, device
        self.steps: list[Record] = []
        self.losses: list[torch.Tensor] = []

    def on_batch(  # type: ignore[override]
        self, trainer: Any, inputs: Any, outputs: Any, *args: Any, is_training: bool, **more: Any
    ) -> None:
        if is_training:
            self.steps.append(self._record.copy())
            self.losses.append(outputs[0]["loss"].detach())
            for name, value in _tensors_of(inputs):
                assert value.device.type == self._device.type, f"{name} is on {value.device}"
        self._record.clear()


def train(
    config: dict, folder: Path, record: Record, batches: int, device: torch.device = CUDA
) -> tuple[TrainModel, StepRecords]:
    """Train on the first batches, as `allennlp train` does, and validate on one.

    # Raises

    `AssertionError` : something of the model or of the optimizer does not lie on the device.
    """
    params = Params(config)
    for seed in ("random_seed", "numpy_seed", "pytorch_seed"):
        params.pop(seed, None)
    torch.manual_seed(0)
    run = TrainModel.from_params(params, serialization_dir=str(folder), local_rank=0)
    trainer = run.trainer
    assert isinstance(trainer, GradientDescentTrainer)
    trainer.data_loader = FirstBatches(trainer.data_loader, batches)  # type: ignore[assignment]
    run.data_loader = trainer.data_loader
    if trainer._validation_data_loader is not None:
        validation = FirstBatches(trainer._validation_data_loader, 1)
        trainer._validation_data_loader = validation  # type: ignore[assignment]
    steps = StepRecords(str(folder), record, device)
    trainer._callbacks.append(steps)
    record.clear()
    run.run()
    assert_on_device(trainer.model, trainer.optimizer, device)
    return run, steps


def assert_on_device(model: Model, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Parameters, buffers, gradients and what the optimizer keeps of each."""
    held = [*model.named_parameters(), *model.named_buffers()]
    gradients = ((f"gradient of {name}", p.grad) for name, p in model.named_parameters())
    held += [(name, gradient) for name, gradient in gradients if gradient is not None]
    for parameter, state in optimizer.state.items():
        held += [(f"{k} of the optimizer", t) for k, t in _tensors_of(state) if t.dim()]
        assert parameter.device.type == device.type
    elsewhere = [name for name, tensor in held if tensor.device.type != device.type]
    assert not elsewhere, f"not on the device: {', '.join(elsewhere)}"


def _tensors_of(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _tensors_of(part, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors_of(part, name)
