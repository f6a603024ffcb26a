"""Trainer callbacks: exact resume, and a record of what was run."""

import json
import logging
import os
import platform
from importlib import metadata
from typing import Any

import numpy as np
import torch
from allennlp.training import GradientDescentTrainer, TrainerCallback
from allennlp.training.callbacks import ShouldValidateCallback

from declutr.archives.carried import archive_transformer
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.models.declutr import DeCLUTR
from declutr.system.atomic_files import write_whole
from declutr.system.distributed import process_rank, world_size
from declutr.system.kernel_choices import CHOICES
from declutr.training.checkpointer import save_whole
from declutr.training.epoch_figures import EpochFigures
from declutr.training.start_validation import no_better_than, validated
from declutr.transformer.linear.training_products import settle_products

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

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary)
        self._on_cpu = trainer.cuda_device.type == "cpu"
        _settle_kernels(trainer)
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
            _restore_best(trainer, is_primary)
        self._reseed(epoch, step)

    def on_batch(
        self,
        trainer: GradientDescentTrainer,
        batch_inputs: Any,
        batch_outputs: Any,
        batch_metrics: Any,
        epoch: int,
        batch_number: int,
        is_training: bool,
        is_primary: bool = True,
        batch_grad_norm: float | None = None,
        **kwargs: Any,
    ) -> None:
        if is_training:
            assert self._figures is not None
            self._figures.add(batch_inputs, batch_outputs, batch_metrics)
            self._reseed(trainer._epochs_completed, trainer._batches_in_epoch_completed)

    def on_epoch(
        self,
        trainer: GradientDescentTrainer,
        metrics: dict[str, Any],
        epoch: int,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        self._trained = True
        self._reseed(epoch + 1, 0)

    def on_end(
        self,
        trainer: GradientDescentTrainer,
        metrics: dict[str, Any] | None = None,
        epoch: int | None = None,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        if metrics is not None and is_primary and not self._trained:
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


def _settle_kernels(trainer: GradientDescentTrainer) -> None:
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


def _restore_best(trainer: GradientDescentTrainer, is_primary: bool) -> None:
    """Write the best weights of a run that was killed between its checkpoint and writing them.

    AllenNLP's trainer writes the checkpoint of an epoch first and then the best weights. Resumed
    from that checkpoint, it would never write them, or archive those of an earlier epoch.

    All processes take part, for the weights may be spread over them.
    """
    folder: str | None = trainer._serialization_dir  # type: ignore[has-type]
    if not folder or not trainer._metric_tracker.is_best_so_far():
        return
    average = trainer._moving_average
    if average is not None:
        average.assign_average_value()
    try:
        best = os.path.join(folder, "best.th")
        state = (trainer._ddp_wrapped_model or trainer.model).state_dict()
        if is_primary:
            save_whole(state, best)
        trainer._best_model_filename = best
    finally:
        if average is not None:
            average.restore()


@TrainerCallback.register("run_record")
class RunRecord(TrainerCallback):
    """Writes `run.json` beside the metrics: versions, size of the run, how the loss is scaled.

    It also opens the validation documents before the first step, so that a mistake there does not
    show after an epoch, and saves the files of the transformer that the archive is to carry.

    A run with validation data is validated before its first step too. What that gives is logged and
    stands in `run.json` (`start`) and in `metrics.json` (`start_validation_loss` and so on), and if
    no epoch is better by the trainer's `validation_metric`, a warning at the end says so. Neither
    patience nor the choice of the best epoch know of it. Where `evaluate_embeddings` chooses the
    best weights, it compares them with the start itself, and this is left out.

    # Parameters

    validate_start : whether to do that, which takes as long as validation after an epoch.
    """

    def __init__(self, serialization_dir: str, validate_start: bool = True) -> None:
        super().__init__(serialization_dir)
        self._validate_start = validate_start
        self._start: dict[str, float] = {}  # metrics of validation before the first step

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary)
        _settle_kernels(trainer)
        validation = trainer._validation_data_loader
        if isinstance(validation, DeCLUTRDataLoader):
            len(validation)  # opens the documents, and raises if they cannot be used
        if self._validates_start(trainer):
            self._start = validated(trainer)
            values = ", ".join(f"{name} {value:.6g}" for name, value in self._start.items())
            logger.info("On the validation data, before the first step: %s", values)
        if not is_primary or not self.serialization_dir:
            return
        archive_transformer(self.serialization_dir)
        loader = trainer.data_loader
        record: dict[str, Any] = {
            "versions": {
                name: _version(name)
                for name in (
                    "declutr",
                    "allennlp",
                    "torch",
                    "transformers",
                    "pytorch-metric-learning",
                )
            },
            "python": platform.python_version(),
            "processes": world_size(),
            "device": str(trainer.cuda_device),
            "epochs": trainer._num_epochs,
            "gradient_accumulation_steps": trainer._num_gradient_accumulation_steps,
        }
        if trainer.cuda_device.type == "cpu":
            record["cpu"] = CHOICES.record()
        if isinstance(loader, DeCLUTRDataLoader):
            record["documents"] = len(loader.documents)
            if loader.batch_size is not None:
                record["global_batch_size"] = loader.batch_size * world_size()
            if loader.max_tokens is not None:
                record["global_max_tokens"] = loader.max_tokens * world_size()
            record["batches_per_epoch"] = len(loader)
        if isinstance(validation, DeCLUTRDataLoader):
            record["validation_documents"] = len(validation.documents)
        if self._start:
            record["start"] = {f"validation_{name}": v for name, v in self._start.items()}
        if isinstance(trainer.model, DeCLUTR):
            record["loss"] = trainer.model.describe_objective()
        # Whole or not at all: a resumed run, and its other processes, read the one before.
        file = os.path.join(self.serialization_dir, "run.json")
        _tell_other_documents(file, record)
        write_whole(file, json.dumps(record, indent=2) + "\n")

    def on_end(
        self,
        trainer: GradientDescentTrainer,
        metrics: dict[str, Any] | None = None,
        epoch: int | None = None,
        is_primary: bool = True,
        **kwargs: Any,
    ) -> None:
        if metrics is None or not self._start:  # it failed, or there is nothing to tell
            return
        metrics.update({f"start_validation_{name}": v for name, v in self._start.items()})
        start = dict(self._start)
        for callback in trainer._callbacks:  # scores that are metrics of validation too
            start |= getattr(callback, "start_scores", {})
        told = no_better_than(trainer._metric_tracker, start)
        if told and is_primary:
            logger.warning(told)

    def _validates_start(self, trainer: GradientDescentTrainer) -> bool:
        loader = trainer._validation_data_loader
        if loader is None or not self._validate_start:
            return False
        if trainer._start_after_epochs_completed or trainer._start_after_batches_in_epoch_completed:
            return False
        # One that gives other batches in each epoch would go on from those of this pass.
        parts = getattr(loader, "batches_per_epoch", None) is not None
        chosen_elsewhere = any(getattr(c, "selects", False) for c in trainer._callbacks)
        return not parts and not chosen_elsewhere

    def state_dict(self) -> dict[str, Any]:
        return {"start": self._start}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._start = state_dict.get("start", {})


def _tell_other_documents(place: str, record: dict[str, Any]) -> None:
    """Warn if a run that is recovered goes on with other documents than it began with."""
    try:
        with open(place) as file:
            before = json.load(file)
    except (OSError, ValueError):  # it begins now
        return
    for key in ("documents", "validation_documents"):
        then, now = before.get(key), record.get(key)
        if then is not None and now is not None and then != now:
            logger.warning(
                "The run has %d %s now and had %d when it began, so that it does not go on as it "
                "would have. Has the data changed? Release 1.5.0 took CSV and TSV for plain text "
                "and a carriage return for the end of a line; a table that is called .txt is still "
                "read by lines.",
                now,
                key.replace("_", " "),
                then,
            )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
