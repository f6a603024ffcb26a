"""The TrainerCallback "run_record", which records a run and validates it before the first step.

AllenNLP validates after epochs only, and archives the best epoch even if the initial weights were
better.
"""

import json
import logging
import os
import platform
from contextlib import ExitStack
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training import GradientDescentTrainer, TrainerCallback
from allennlp.training.metric_tracker import MetricTracker

from declutr._version import __version__
from declutr.archives import RUN
from declutr.archives.carried import archive_transformer
from declutr.archives.fitted_weights import remove_whitening
from declutr.bridge.resumption import has_resumed
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.data.row_reader import RowReader
from declutr.models.declutr import DeCLUTR
from declutr.system import installed_versions
from declutr.system.distributed import world_size
from declutr.system.files import write_whole
from declutr.system.kernel_choices import CHOICES
from declutr.training.epoch_figures import epoch_metrics
from declutr.training.exact_resume import settle_kernels
from declutr.training.model_in_training import undisturbed

logger = logging.getLogger(__name__)

_LIBRARIES = ("allennlp", "torch", "transformers", "pytorch-metric-learning")
_SEED = 13370  # the seed of validation before the first step


@TrainerCallback.register("run_record")
class RunRecord(TrainerCallback):
    """A callback that writes `run.json`: versions, size of the run, settings of the loss.

    It also opens the validation data before the first step, so that a mistake in them shows at once
    and not after an epoch, and saves the files of the transformer that the archive carries.

    A run with validation data is validated before its first step as well. The metrics are logged
    and written to `run.json` (`start`) and `metrics.json` (`start_validation_loss` and others). If
    no epoch is better by the trainer's `validation_metric`, a warning at the end says so. Patience
    and the choice of the best epoch do not take them into account. If `evaluate_embeddings` chooses
    the best weights, this validation is left out, because that callback scores the initial weights
    itself.

    # Parameters

    serialization_dir : the serialization directory, which AllenNLP passes.
    validate_start : False leaves out the validation before the first step, which takes as long as
        validation after an epoch.
    """

    looks_at_metrics = False

    def __init__(self, serialization_dir: str, validate_start: bool = True) -> None:
        super().__init__(serialization_dir)
        self._validate_start = validate_start
        self._start: dict[str, float] = {}  # metrics of validation before the first step
        self._trained = False  # whether a step of this run has been done by this process

    def on_start(
        self, trainer: GradientDescentTrainer, is_primary: bool = True, **kwargs: Any
    ) -> None:
        super().on_start(trainer, is_primary)
        settle_kernels(trainer)
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
        record = self._record(trainer)
        # Resumed runs and other processes read this file, so it must never be incomplete.
        file = os.path.join(self.serialization_dir, RUN)
        _tell_other_documents(file, record)
        write_whole(file, json.dumps(record, indent=2) + "\n")

    def on_batch(
        self, trainer: GradientDescentTrainer, *batch: Any, is_training: bool = False, **kwargs: Any
    ) -> None:
        if is_training and not self._trained:
            self._trained = True
            if trainer._primary and self.serialization_dir:
                # Encoders that are opened before the run ends would apply it to later weights.
                remove_whitening(self.serialization_dir)

    def _record(self, trainer: GradientDescentTrainer) -> dict[str, Any]:
        """Return the contents of `run.json`."""
        loader, validation = trainer.data_loader, trainer._validation_data_loader
        record: dict[str, Any] = {
            "versions": {
                # Of the code that runs: in a clone, what was installed may be an earlier release.
                "declutr": __version__,
                **dict.fromkeys(_LIBRARIES),
                **installed_versions(*_LIBRARIES),
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
            if loader.subset is not None:
                rows = loader.reader.documents(loader.data_path)
                record["subset"] = loader.subset.record(len(rows))
            sizes = {"batch_size": loader.batch_size, "max_tokens": loader.max_tokens}
            for name, size in sizes.items():
                if size is not None:
                    record[f"global_{name}"] = size * world_size()
            record["batches_per_epoch"] = len(loader)
        if isinstance(validation, DeCLUTRDataLoader):
            record["validation_documents"] = len(validation.documents)
        if self._start:
            record["start"] = {f"validation_{name}": v for name, v in self._start.items()}
        if isinstance(trainer.model, DeCLUTR):
            record["loss"] = trainer.model.describe_objective()
        return record

    def on_end(
        self, trainer: GradientDescentTrainer, metrics: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        if metrics is None or not self._start:  # the run failed, or its start was not validated
            return
        metrics.update({f"start_validation_{name}": v for name, v in self._start.items()})
        start = dict(self._start)
        for callback in trainer._callbacks:  # scores of tasks count as validation metrics
            start |= getattr(callback, "start_scores", {})
        told = no_better_than(trainer._metric_tracker, start)
        if told and trainer._primary:
            logger.warning(told)

    def _validates_start(self, trainer: GradientDescentTrainer) -> bool:
        loader = trainer._validation_data_loader
        if loader is None or not self._validate_start:
            return False
        if has_resumed(trainer):
            return False
        # A loader that gives other batches in each epoch would continue after the batches of this
        # pass.
        parts = getattr(loader, "batches_per_epoch", None) is not None
        chosen_elsewhere = any(getattr(c, "selects", False) for c in trainer._callbacks)
        return not parts and not chosen_elsewhere

    def state_dict(self) -> dict[str, Any]:
        return {"start": self._start}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._start = state_dict.get("start", {})


def _tell_other_documents(place: str, record: dict[str, Any]) -> None:
    """Warn if a resumed run has another number of documents than it began with."""
    try:
        with open(place) as file:
            before = json.load(file)
    except (OSError, ValueError):  # the run is new
        return
    for key in ("documents", "validation_documents"):
        then, now = before.get(key), record.get(key)
        if then is not None and now is not None and then != now:
            logger.warning(
                f"The run has {now} {key.replace('_', ' ')} now and had {then} when it began, so "
                "that it does not go on as it would have. Has the data changed? Release 1.5.0 "
                "took CSV and TSV for plain text and a carriage return for the end of a line; a "
                "table that is called .txt is still read by lines."
            )


def validated(trainer: GradientDescentTrainer) -> dict[str, float]:
    """Return the metrics of a pass over the validation data with the current weights.

    With a moving average, its weights are validated. The pass does not affect training: random
    numbers, modes of modules and running metrics are restored, callbacks are not called, and the
    first epoch draws the same training and validation data, even if AllenNLP's own loaders share a
    dataset reader. All processes must call this.
    """
    loader = trainer._validation_data_loader
    readers = [getattr(loader, "reader", None), *getattr(loader, "readers", {}).values()]
    callbacks, trainer._callbacks = trainer._callbacks, []
    try:
        with ExitStack() as stack:
            for reader in readers:
                if isinstance(reader, RowReader):
                    stack.enter_context(reader.same_epoch_after())
            stack.enter_context(undisturbed(trainer.model, trainer.cuda_device, _SEED))
            stack.enter_context(torch.no_grad())
            return epoch_metrics(trainer.model, *trainer._validation_loss(0))
    finally:
        trainer._callbacks = callbacks
        if isinstance(loader, DeCLUTRDataLoader):
            loader.begin_at(0)


def no_better_than(tracker: MetricTracker, start: dict[str, float]) -> str | None:
    """Return a warning for a run whose best epoch is no better than its start, or `None`.

    # Parameters

    tracker : the trainer's tracker of all epochs.
    start : the validation metrics before the first step. If the `validation_metric` is not one of
        them, there is no warning.
    """
    if tracker._best_so_far is None:
        return None
    try:  # the method of this class, as a subclass may add current metrics
        at_the_start = MetricTracker.combined_score(tracker, start)
    except ConfigurationError:
        return None
    if not tracker._best_so_far <= at_the_start:  # also true if one is not a number
        return None
    figures = " and ".join(
        f"{name} was {start[name]:.6g} at the start and {tracker.best_epoch_metrics[name]:.6g} "
        "after the best epoch"
        for _, name in tracker.tracked_metrics
        if name in tracker.best_epoch_metrics
    )
    return (
        f"On the validation data {figures} ({tracker.best_epoch}): this run did not improve the "
        "model. The archive holds the weights of that epoch all the same. Look at the learning "
        "rate and the data. (Against a memory that fills while training, a loss begins low.)"
    )
