"""Losses and other figures of a training epoch, which a resumed run reports of the whole epoch."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from allennlp.common import util
from allennlp.nn.util import dist_reduce_sum
from allennlp.training import GradientDescentTrainer
from allennlp.training.util import get_metrics

from declutr.models.metrics import RunningMeans, read_scalars
from declutr.system.distributed import of_all_processes, process_rank, world_size
from declutr.training.metric_states import load_metric_states, metric_states

logger = logging.getLogger(__name__)


class LossSums:
    """What the losses of an epoch, and the penalties of the regularizer in them, sum up to.

    They are kept as they are until somebody reads, and then all are copied at once. Sums are made
    step by step in float64, as AllenNLP's trainer makes them: the same to the bit.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin an epoch."""
        self.loss, self.penalty = 0.0, 0.0
        self._unread: list[tuple[int, Sequence[torch.Tensor], Sequence[torch.Tensor]]] = []
        self.batch_loss: float | None = None
        """Of the step that was read last, all its batches together."""
        self.batch_penalty: float | None = None
        """Of the last batch of that step; None without a regularizer."""

    def load(self, sums: Sequence[float]) -> None:
        """Go on from what `read` gave."""
        self.reset()
        self.loss, self.penalty = sums

    def add(
        self, step: int, losses: Sequence[torch.Tensor], penalties: Sequence[torch.Tensor]
    ) -> None:
        """Keep those of the batches of a step, each divided by the number of batches.

        Tensors must not be changed in place afterwards.
        """
        self._unread.append((step, losses, penalties))

    def read(self) -> list[float]:
        """The sums of losses and of penalties so far.

        # Raises

        `ValueError` : a loss is not a number.
        """
        unread, self._unread = self._unread, []
        scalars = [scalar for _, losses, penalties in unread for scalar in (*losses, *penalties)]
        numbers = iter(read_scalars(scalars))
        for step, losses, penalties in unread:
            self.batch_loss = 0.0
            for _ in losses:
                loss = next(numbers)
                if math.isnan(loss):
                    raise ValueError(_nan_loss(step, last=unread[-1][0]))
                self.batch_loss += loss
            self.loss += self.batch_loss
            for _ in penalties:
                self.batch_penalty = next(numbers)
                self.penalty += self.batch_penalty
        return [self.loss, self.penalty]


def _nan_loss(step: int, last: int) -> str:
    text = f"nan loss encountered in step {step} of the epoch"
    if step < last:
        text += f" ({last} were done until somebody looked)"
    return f"{text}. No checkpoint was written since; --recover goes on from the last one."


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
        losses: Any = getattr(trainer, "losses", None)
        self._counts = not isinstance(losses, LossSums)  # the trainer "declutr" does it itself
        self._losses: LossSums = LossSums() if self._counts else losses
        self._gathered: tuple[int, list[list[float]]] | None = None  # at which step, and what
        self._partial = False
        if saved is not None:
            self._load(saved)
        self._train_epoch = trainer._train_epoch
        trainer._train_epoch = self.train_epoch  # type: ignore[method-assign]

    def add(self, steps: list[Any], outputs: list[Any], metrics: dict[str, float]) -> None:
        """Count a training step: its batches, what the model gave, and the trainer's metrics."""
        if self._counts:
            self._losses.loss += metrics["batch_loss"]
            if "reg_loss" in metrics:
                for output in outputs:  # in the trainer's order, for the same rounding
                    self._losses.penalty += (output["reg_loss"] / len(steps)).item()
        self._partial = len(outputs) < self._trainer._num_gradient_accumulation_steps

    def gather(self) -> None:
        """Have the sums of all processes for a checkpoint, which one of them writes.

        All must call it after the same step. Not after a step of fewer batches than others, which
        may be the last of one process because another has no data left, and is not listening.
        """
        if not self._partial:
            step = self._trainer._total_batches_completed
            self._gathered = step, of_all_processes(self._losses.read())

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """The trainer's own, with the figures of the whole epoch."""
        metrics = self._train_epoch(epoch)
        if epoch >= self._resumed_in:  # those before are skipped
            if self._saved is not None:
                self._complete(metrics, self._saved)
            self._saved = None
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
        steps, (loss, penalty) = self._trainer._batches_in_epoch_completed, self._losses.read()
        penalized = model.get_regularization_penalty() is not None
        if none_left:
            metrics.update(epoch_metrics(model, loss, penalty if penalized else None, steps))
            return
        of_all = dist_reduce_sum(steps)
        metrics["loss"] = dist_reduce_sum(loss) / of_all
        if penalized:
            metrics["reg_loss"] = dist_reduce_sum(penalty) / of_all

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of this."""
        model = self._trainer.model
        means = running_means(model)
        states, left_out = metric_states(model)
        sums: list[list[float]] | None = [self._losses.read()]
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
            self._losses.load(sums[process_rank()])
        elif process_rank() == 0:  # only their total counts
            self._losses.load([sum(column) for column in zip(*sums, strict=True)])
        if lost:
            logger.warning(
                "The checkpoint does not hold what these were at: %s. In this epoch they leave out "
                "what came before it.",
                ", ".join(lost),
            )


def epoch_metrics(model: Any, loss: float, penalty: float | None, batches: int) -> dict[str, float]:
    """Return the metrics of an epoch, of all processes, and have the model begin another.

    # Parameters

    loss, penalty : what this process has summed up; `None` for no regularizer.
    batches : of this process.
    """
    return get_metrics(
        model,
        dist_reduce_sum(loss),
        None if penalty is None else dist_reduce_sum(penalty),
        batch_loss=None,
        batch_reg_loss=None,
        num_batches=dist_reduce_sum(batches),
        reset=True,
    )


def running_means(model: Any) -> RunningMeans | None:
    """Those of a training epoch, of the models that have any."""
    means = getattr(model, "training_means", None)
    return means if isinstance(means, RunningMeans) else None


def peak_memory() -> dict[str, float]:
    """What processes and GPUs took at most in the epoch before, in MB, as metrics; logged too."""
    metrics = {}
    for kind, peaks in (("worker", util.peak_cpu_memory()), ("gpu", util.peak_gpu_memory())):
        for number, peak in peaks.items():
            logger.info("Memory of %s %d: %s", kind, number, util.format_size(peak))
            metrics[f"{kind}_{number}_memory_MB"] = peak / (1024 * 1024)
    return metrics
