"""The TrainerCallback "exact_resume", which makes a resumed run equal to an uninterrupted one."""

import json
import logging
import os
from typing import Any

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training import GradientDescentTrainer, TrainerCallback
from allennlp.training.callbacks import ShouldValidateCallback

from declutr.archives import BEST_WEIGHTS
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.system.distributed import process_rank
from declutr.system.kernel_choices import CHOICES
from declutr.training.checkpointer import write_best_weights
from declutr.training.epoch_figures import EpochFigures
from declutr.training.model_in_training import averaged_weights
from declutr.training.resumed_data import data_of_steps, tell_other_data
from declutr.transformer.training_products import settle_products

logger = logging.getLogger(__name__)


@TrainerCallback.register("exact_resume")
class ExactResume(TrainerCallback):
    """A callback that makes a resumed run bit-identical to one that was not interrupted.

    Before every step, torch's random numbers (dropout, masks) are seeded by seed, epoch, step and
    process. So their state need not be saved, and a resumed step draws the same numbers. With
    `--recover`, the data loader skips the batches that were trained on without reading them, and
    the figures of the epoch continue from the checkpoint: losses, the running means of the model,
    and the states of its AllenNLP metrics. On a CPU, the run continues with the kernels that it
    began with (`declutr.system.kernel_choices`), or a warning says that it cannot. Others say if
    the training data are not those of the checkpoint, or steps take more or less of them.

    # Parameters

    serialization_dir : the serialization directory, which AllenNLP passes.
    seed : the seed of the random numbers of training steps.
    """

    # `EpochFigures.add` uses metrics with AllenNLP's trainer only, which reads them at every step.
    looks_at_metrics = False

    def __init__(self, serialization_dir: str, seed: int = 13370) -> None:
        super().__init__(serialization_dir)
        self._seed = seed
        self._saved: dict[str, Any] | None = None
        self._figures: EpochFigures | None = None
        self._trained = False
        self._on_cpu = False
        self._other_kernels: str | None = None  # why the kernels of the run cannot be used
        self._data: dict[str, Any] = {}  # what steps are made of: `data_of_steps`

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        super().on_start(trainer, *args, **kwargs)
        if trainer._num_gradient_accumulation_steps is None:
            raise ConfigurationError(
                "num_gradient_accumulation_steps is null, which makes one step of an epoch. The "
                "callback exact_resume needs the number of batches that a step has: 1, or more."
            )
        self._on_cpu = trainer.cuda_device.type == "cpu"
        settle_kernels(trainer)
        if self._on_cpu and self._other_kernels:
            logger.warning(
                "This run goes on as it would have done without the interruption up to rounding "
                f"only, and not to the bit: {self._other_kernels}."
            )
        epoch = trainer._start_after_epochs_completed
        step = trainer._start_after_batches_in_epoch_completed
        if isinstance(trainer.data_loader, DeCLUTRDataLoader):
            loader = trainer.data_loader
            self._data = data_of_steps(trainer, loader)
            tell_other_data(self._saved or {}, self._data, step, loader.data_path)
            loader.resume_at(epoch, step * trainer._num_gradient_accumulation_steps)
        if isinstance(trainer._validation_data_loader, DeCLUTRDataLoader):
            # It counts how often it was read, which happens once an epoch, but not in skipped
            # epochs.
            trainer._validation_data_loader.begin_at(epoch)
        self._figures = EpochFigures(trainer, self._saved if step else None)
        if epoch and not step and _was_validated(trainer, epoch - 1):
            _restore_best(trainer)
        self._reseed(epoch, step)

    def on_batch(
        self,
        trainer: GradientDescentTrainer,
        batch_inputs: Any,
        batch_outputs: Any,
        batch_metrics: Any,
        *args: Any,
        is_training: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_training:
            assert self._figures is not None
            self._figures.add(batch_inputs, batch_outputs, batch_metrics)
            self._reseed(trainer._epochs_completed, trainer._batches_in_epoch_completed)

    def on_epoch(
        self, trainer: GradientDescentTrainer, metrics: Any, epoch: int, *args: Any, **kwargs: Any
    ) -> None:
        self._trained = True
        self._reseed(epoch + 1, 0)

    def on_end(
        self, trainer: GradientDescentTrainer, metrics: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        if metrics is not None and trainer._primary and not self._trained:
            metrics.update(self._last_metrics(trainer._start_after_epochs_completed - 1))

    def _last_metrics(self, epoch: int) -> dict[str, Any]:
        """Return the metrics of the last epoch, for a resumed run with nothing left to do."""
        try:
            with open(os.path.join(self.serialization_dir, f"metrics_epoch_{epoch}.json")) as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def _reseed(self, epoch: int, step: int) -> None:
        mixed = np.random.SeedSequence([self._seed, epoch, step, process_rank()])
        seed = int(mixed.generate_state(1, np.uint64)[0])
        # `torch.manual_seed` seeds every device. Before CUDA is in use it also records a stack
        # trace for each, which is slow.
        (torch.default_generator if self._on_cpu else torch).manual_seed(seed)

    def gather_state(self) -> None:
        """Gather the state of all processes; the Checkpointer "atomic" calls this before saving."""
        if self._figures is not None:
            self._figures.gather()

    def state_dict(self) -> dict[str, Any]:
        figures = {} if self._figures is None else self._figures.state_dict()
        return {"seed": self._seed, "kernels": CHOICES.record(), **self._data, **figures}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["seed"] != self._seed:
            logger.warning(
                f"This run was begun with seed {state_dict['seed']} and goes on with {self._seed}: "
                "it will not repeat what an uninterrupted one would have done."
            )
        self._saved = state_dict
        self._other_kernels = CHOICES.resume(state_dict.get("kernels"))


def settle_kernels(trainer: GradientDescentTrainer) -> None:
    """Choose the kernels for training on a CPU before the first step, equal in all processes."""
    # There is no choice of kernels in bfloat16.
    if trainer.cuda_device.type == "cpu" and getattr(trainer.model, "_precision", "") != "bfloat16":
        settle_products(trainer.model)


def _was_validated(trainer: GradientDescentTrainer, epoch: int) -> bool:
    return all(
        callback._should_validate(epoch)
        for callback in trainer._callbacks
        if isinstance(callback, ShouldValidateCallback)
    )


def _restore_best(trainer: GradientDescentTrainer) -> None:
    """Write the best weights of a run that was killed after its checkpoint and before them.

    AllenNLP's trainer writes the checkpoint of an epoch first and then the best weights. Resumed
    from that checkpoint, it would not write them, and would archive those of an earlier epoch.
    """
    folder: str | None = trainer._serialization_dir  # type: ignore[has-type]
    if folder and trainer._metric_tracker.is_best_so_far():
        with averaged_weights(trainer):
            write_best_weights(trainer, os.path.join(folder, BEST_WEIGHTS))
