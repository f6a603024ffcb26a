"""The figures of a training epoch, so that a resumed run reports those of the whole epoch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from allennlp.nn.util import dist_reduce_sum
from allennlp.training import GradientDescentTrainer
from allennlp.training.util import get_metrics

from declutr.distributed import of_all_processes, process_rank, world_size
from declutr.metric_states import load_metric_states, metric_states
from declutr.metrics import RunningMeans
from declutr.model import DeCLUTR
from declutr.reclaim_model import ReclaimModel

logger = logging.getLogger(__name__)


class EpochFigures:
    """Sums of the losses of an epoch, the model's running means, and what its metrics counted.

    AllenNLP's trainer forgets all of them when it is resumed within an epoch, and reports nothing
    at all of an epoch of which no step is left. This puts itself around `_train_epoch` of a
    trainer, where its figures are made, and adds what was before.

    # Parameters

    trainer : one that is about to start, with its checkpoint loaded.
    saved : the `state_dict` of that checkpoint; None at the beginning of an epoch.
    """

    def __init__(self, trainer: GradientDescentTrainer, saved: dict[str, Any] | None) -> None:
        self._trainer = trainer
        self._resumed_in = trainer._start_after_epochs_completed
        self._saved = saved
        self._sums = [0.0, 0.0]  # of the loss, and of what the regularizer adds to it
        self._sums_of_all = [self._sums]
        if saved is not None:
            self._load(saved)
        self._train_epoch = trainer._train_epoch
        trainer._train_epoch = self.train_epoch  # type: ignore[method-assign]
        trainer.get_checkpoint_state = self._gathering(  # type: ignore[method-assign]
            trainer.get_checkpoint_state
        )

    def add(self, steps: list[Any], outputs: list[Any], metrics: dict[str, float]) -> None:
        """Count a training step: its batches, what the model gave, and the trainer's metrics."""
        self._sums[0] += metrics["batch_loss"]
        if "reg_loss" in metrics:
            for output in outputs:  # in the trainer's order, for the same rounding
                self._sums[1] += (output["reg_loss"] / len(steps)).item()

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """The trainer's own, with the figures of the whole epoch."""
        metrics = self._train_epoch(epoch)
        if epoch >= self._resumed_in:  # those before are skipped
            if self._saved is not None:
                self._complete(metrics, self._saved)
            self._saved = None
            self._sums = [0.0, 0.0]
        return metrics

    def _complete(self, metrics: dict[str, float], saved: dict[str, Any]) -> None:
        """Put the figures of the whole epoch in the place of those since it was resumed."""
        model, none_left = self._trainer.model, "loss" not in metrics
        if "sums" not in saved:  # the trainer's are the best there are
            means = running_means(model)
            if none_left and means is not None:
                metrics.update(means.compute())
                means.reset()
            return
        steps = dist_reduce_sum(self._trainer._batches_in_epoch_completed)
        loss, penalty = dist_reduce_sum(self._sums[0]), None
        if model.get_regularization_penalty() is not None:
            penalty = dist_reduce_sum(self._sums[1])
        if none_left:
            metrics.update(get_metrics(model, loss, penalty, None, None, steps, reset=True))
            return
        metrics["loss"] = loss / steps
        if penalty is not None:
            metrics["reg_loss"] = penalty / steps

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of this."""
        model = self._trainer.model
        means = running_means(model)
        states, left_out = metric_states(model)
        return {
            "means": None if means is None else means.state_dict(),
            "sums": self._sums_of_all,
            "metrics": states,
            "left_out": left_out,
        }

    def _load(self, saved: dict[str, Any]) -> None:
        model, device = self._trainer.model, self._trainer.cuda_device
        means = running_means(model)
        if saved.get("means") is not None and means is not None:
            # Not where parameters are: those may be offloaded.
            means.load_state_dict(saved["means"], device)
        if "sums" not in saved:
            logger.warning(
                "The checkpoint is of an earlier release: the training_loss of this epoch, and "
                "metrics of a model that is not of this package, leave out what came before it."
            )
            return
        load_metric_states(model, saved["metrics"], device)
        if saved["left_out"]:
            logger.warning(
                "A checkpoint cannot hold %s: metrics that are made of it begin anew in this "
                "epoch.",
                ", ".join(saved["left_out"]),
            )
        sums = saved["sums"]
        if len(sums) == world_size():
            self._sums = list(sums[process_rank()])
        elif process_rank() == 0:  # only their total counts
            self._sums = [sum(column) for column in zip(*sums, strict=True)]

    def _gathering(self, get_checkpoint_state: Callable[[], Any]) -> Callable[[], Any]:
        """All processes are asked for the state of a checkpoint, but only one calls callbacks."""

        def gather_and_get() -> Any:
            self._sums_of_all = of_all_processes(self._sums)
            return get_checkpoint_state()

        return gather_and_get


def running_means(model: Any) -> RunningMeans | None:
    """Those of a training epoch, of the models that have any."""
    return model.training_means if isinstance(model, (DeCLUTR, ReclaimModel)) else None
