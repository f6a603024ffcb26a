"""The TrainerCallback "exact_resume": a resumed run repeats what it would have done."""

import json
import logging
import os
from typing import Any

import numpy as np
import torch
from allennlp.training import GradientDescentTrainer, TrainerCallback
from allennlp.training.callbacks import ShouldValidateCallback

from declutr.archives import BEST_WEIGHTS
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.system.distributed import process_rank
from declutr.system.kernel_choices import CHOICES
from declutr.training.checkpointer import write_best_weights
from declutr.training.epoch_figures import EpochFigures
from declutr.training.model_in_training import averaged_weights
from declutr.transformer.training_products import settle_products

logger = logging.getLogger(__name__)


@TrainerCallback.register("exact_resume")
class ExactResume(TrainerCallback):
    """Makes a resumed run repeat, bit for bit, what it would have done without the interruption.

    Before every step, torch's random numbers (dropout, masks) are seeded by (seed, epoch, step,
    process). So nothing of their state has to be saved, and a resumed step draws what it would have
    drawn. On `--recover` the data loader is told to skip what was done without reading it, and all
    figures of the epoch go on where they were: losses, the model's running means, and what the
    `Metric` objects of AllenNLP in it have counted. On a CPU it goes on with the kernels that it
    was begun with (`declutr.system.kernel_choices`), or a warning says that it cannot.

    # Parameters

    seed : of the random numbers of training steps.
    """

    # With AllenNLP's trainer `EpochFigures.add` takes metrics, which that trainer has read anyway.
    looks_at_metrics = False

    def __init__(self, serialization_dir: str, seed: int = 13370) -> None:
        super().__init__(serialization_dir)
        self._seed = seed
        self._saved: dict[str, Any] | None = None
        self._figures: EpochFigures | None = None
        self._trained = False
        self._on_cpu = False
        self._other_kernels: str | None = None  # why those of the run cannot be taken

    def on_start(self, trainer: GradientDescentTrainer, *args: Any, **kwargs: Any) -> None:
        super().on_start(trainer, *args, **kwargs)
        self._on_cpu = trainer.cuda_device.type == "cpu"
        settle_kernels(trainer)
        if self._on_cpu and self._other_kernels:
            logger.warning(
                "This run goes on as it would have done without the interruption up to rounding "
                "only, and not to the bit: %s.",
                self._other_kernels,
            )
        epoch = trainer._start_after_epochs_completed
        step = trainer._start_after_batches_in_epoch_completed
        if isinstance(trainer.data_loader, DeCLUTRDataLoader):
            trainer.data_loader.resume_at(epoch, step * trainer._num_gradient_accumulation_steps)
        if isinstance(trainer._validation_data_loader, DeCLUTRDataLoader):
            # It is read once an epoch, and not at all in those that are skipped.
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
        """What a run reported in the end that had nothing left to do when it was resumed."""
        try:
            with open(os.path.join(self.serialization_dir, f"metrics_epoch_{epoch}.json")) as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}

    def _reseed(self, epoch: int, step: int) -> None:
        mixed = np.random.SeedSequence([self._seed, epoch, step, process_rank()])
        seed = int(mixed.generate_state(1, np.uint64)[0])
        # torch seeds every device, and notes from where if CUDA is not in use: a slow thing.
        (torch.default_generator if self._on_cpu else torch).manual_seed(seed)

    def gather_state(self) -> None:
        """Make ready for a checkpoint; "atomic" calls this in all processes before it writes."""
        if self._figures is not None:
            self._figures.gather()

    def state_dict(self) -> dict[str, Any]:
        figures = {} if self._figures is None else self._figures.state_dict()
        return {"seed": self._seed, "kernels": CHOICES.record(), **figures}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if state_dict["seed"] != self._seed:
            logger.warning(
                "This run was begun with seed %s and goes on with %s: it will not repeat what an "
                "uninterrupted one would have done.",
                state_dict["seed"],
                self._seed,
            )
        self._saved = state_dict
        self._other_kernels = CHOICES.resume(state_dict.get("kernels"))


def settle_kernels(trainer: GradientDescentTrainer) -> None:
    """Choose kernels before the first step, the same ones in all processes."""
    # In bfloat16 there is nothing to choose.
    if trainer.cuda_device.type == "cpu" and getattr(trainer.model, "_precision", "") != "bfloat16":
        settle_products(trainer.model)


def _was_validated(trainer: GradientDescentTrainer, epoch: int) -> bool:
    return all(
        callback._should_validate(epoch)
        for callback in trainer._callbacks
        if isinstance(callback, ShouldValidateCallback)
    )


def _restore_best(trainer: GradientDescentTrainer) -> None:
    """Write the best weights of a run that was killed between its checkpoint and writing them.

    AllenNLP's trainer writes the checkpoint of an epoch first and then the best weights. Resumed
    from that checkpoint, it would never write them, or archive those of an earlier epoch.
    """
    folder: str | None = trainer._serialization_dir  # type: ignore[has-type]
    if folder and trainer._metric_tracker.is_best_so_far():
        with averaged_weights(trainer):
            write_best_weights(trainer, os.path.join(folder, BEST_WEIGHTS))
