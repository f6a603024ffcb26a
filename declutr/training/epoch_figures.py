"""The figures of a training epoch, so that a resumed run reports those of the whole epoch."""

from __future__ import annotations

import logging
from typing import Any

from allennlp.common import util
from allennlp.nn.util import dist_reduce_sum
from allennlp.training import GradientDescentTrainer
from allennlp.training.util import get_metrics

from declutr.models.declutr import DeCLUTR
from declutr.models.reclaim.model import ReclaimModel
from declutr.modules.metrics import RunningMeans
from declutr.system.distributed import of_all_processes, process_rank, world_size
from declutr.training.loss_sums import LossSums
from declutr.training.metric_states import load_metric_states, metric_states

logger = logging.getLogger(__name__)


class EpochFigures:
    """Sums of the losses of an epoch, the model's running means, and what its metrics counted.

    AllenNLP's trainer forgets all of them when it is resumed within an epoch, and reports nothing
    at all of an epoch of which no step is left. This puts itself around `_train_epoch` of a
    trainer, where its figures are made, and adds what was before.

    Sums and means are kept of each process, the metrics of the first alone: see `metric_states`.

    # Parameters

    trainer : one that is about to start, with its checkpoint loaded.
    saved : the `state_dict` of that checkpoint; None at the beginning of an epoch.
    """

    def __init__(self, trainer: GradientDescentTrainer, saved: dict[str, Any] | None) -> None:
        self._trainer = trainer
        self._resumed_in = trainer._start_after_epochs_completed
        self._saved = saved
        # Of the loss, and of what the regularizer adds to it; the trainer "declutr" has its own.
        losses = getattr(trainer, "losses", None)
        self._losses = losses if isinstance(losses, LossSums) else None
        self._own_sums = [0.0, 0.0]
        self._gathered: tuple[int, list[list[float]]] | None = None  # at which step, and what
        self._partial = False
        if saved is not None:
            self._load(saved)
        self._train_epoch = trainer._train_epoch
        trainer._train_epoch = self.train_epoch  # type: ignore[method-assign]

    def add(self, steps: list[Any], outputs: list[Any], metrics: dict[str, float]) -> None:
        """Count a training step: its batches, what the model gave, and the trainer's metrics."""
        if self._losses is None:
            self._own_sums[0] += metrics["batch_loss"]
            if "reg_loss" in metrics:
                for output in outputs:  # in the trainer's order, for the same rounding
                    self._own_sums[1] += (output["reg_loss"] / len(steps)).item()
        self._partial = len(outputs) < self._trainer._num_gradient_accumulation_steps

    @property
    def _sums(self) -> list[float]:
        return self._own_sums if self._losses is None else self._losses.read()

    def gather(self) -> None:
        """Have the sums of all processes for a checkpoint, which one of them writes.

        All must call it after the same step. Not after a step of fewer batches than others, which
        may be the last of one process because another has no data left, and is not listening.
        """
        if not self._partial:
            step = self._trainer._total_batches_completed
            self._gathered = step, of_all_processes(self._sums)

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """The trainer's own, with the figures of the whole epoch."""
        metrics = self._train_epoch(epoch)
        if epoch >= self._resumed_in:  # those before are skipped
            if self._saved is not None:
                self._complete(metrics, self._saved)
            self._saved = None
            self._own_sums = [0.0, 0.0]
            if self._losses is not None:
                self._losses.reset()
        return metrics

    def _complete(self, metrics: dict[str, float], saved: dict[str, Any]) -> None:
        """Put the figures of the whole epoch in the place of those since it was resumed."""
        model, none_left = self._trainer.model, "loss" not in metrics
        if saved.get("sums") is None:  # the trainer's are the best there are
            if none_left:
                means = running_means(model)
                metrics.update(means.compute() if means is not None else {})
                if "metrics" in saved:
                    metrics.update(model.get_metrics(reset=True))
                elif means is not None:
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
        sums: list[list[float]] | None = [self._sums]
        if world_size() > 1:
            step, gathered = self._gathered or (None, None)
            sums = gathered if step == self._trainer._total_batches_completed else None
        return {
            "means": None if means is None else means.state_dict(),
            "sums": sums,
            "metrics": states,
            "left_out": left_out,
        }

    def _load(self, saved: dict[str, Any]) -> None:
        model, device = self._trainer.model, self._trainer.cuda_device
        means = running_means(model)
        if saved.get("means") is not None and means is not None:
            means.load_state_dict(saved["means"])
        if "metrics" in saved:
            load_metric_states(model, saved["metrics"], device)
        lost = list(saved.get("left_out", metric_states(model)[0]))
        sums = saved.get("sums")
        if sums is None:
            lost.append("training_loss")
        elif len(sums) == world_size():
            self._own_sums = list(sums[process_rank()])
        elif process_rank() == 0:  # only their total counts
            self._own_sums = [sum(column) for column in zip(*sums, strict=True)]
        if self._losses is not None:
            self._losses.load(self._own_sums)
        if lost:
            logger.warning(
                "The checkpoint does not hold what these were at: %s. In this epoch they leave out "
                "what came before it.",
                ", ".join(lost),
            )


def running_means(model: Any) -> RunningMeans | None:
    """Those of a training epoch, of the models that have any."""
    return model.training_means if isinstance(model, (DeCLUTR, ReclaimModel)) else None


def peak_memory() -> dict[str, float]:
    """What processes and GPUs took at most in the epoch before, in MB, as metrics; logged too."""
    metrics = {}
    for kind, peaks in (("worker", util.peak_cpu_memory()), ("gpu", util.peak_gpu_memory())):
        for number, peak in peaks.items():
            logger.info("Memory of %s %d: %s", kind, number, util.format_size(peak))
            metrics[f"{kind}_{number}_memory_MB"] = peak / (1024 * 1024)
    return metrics
