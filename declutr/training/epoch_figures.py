"""Losses and metrics of a training epoch, which a resumed run reports over the whole epoch."""

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
from declutr.training.metric_states import (
    differing_states,
    load_metric_states,
    metric_states,
    metrics_of_others,
)

logger = logging.getLogger(__name__)


class LossSums:
    """The sums of the losses and of the regularizer's penalties in an epoch.

    Losses stay on the device until `read` copies them to the host all together. They are summed
    step by step in float64, which gives the same bits as AllenNLP's trainer.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Set the sums to zero at the start of an epoch."""
        self.loss, self.penalty = 0.0, 0.0
        self.steps = 0
        """The number of steps whose losses are in the sums."""
        self._unread: list[tuple[int, Sequence[torch.Tensor], Sequence[torch.Tensor]]] = []
        self.batch_loss: float | None = None
        """The loss of the step that was read last, summed over its batches."""
        self.batch_penalty: float | None = None
        """The penalty of the last batch of that step; `None` without a regularizer."""

    def load(self, sums: Sequence[float], steps: int) -> None:
        """Restore the sums of losses and penalties that `read` returned after so many steps."""
        self.reset()
        self.loss, self.penalty = sums
        self.steps = steps

    def add(
        self, step: int, losses: Sequence[torch.Tensor], penalties: Sequence[torch.Tensor]
    ) -> None:
        """Add the losses and penalties of the batches of a step.

        # Parameters

        step : the number of the step in the epoch, counted from 1.
        losses, penalties : scalars, each divided by the number of batches of the step. They must
            not be changed in place afterwards.
        """
        self._unread.append((step, losses, penalties))

    def read(self) -> list[float]:
        """Return the sums of losses and of penalties so far.

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
            self.steps += 1
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
    """Losses, running means and metric states of an epoch, carried over to a resumed run.

    When AllenNLP's trainer resumes within an epoch, it reports on the remaining steps only, if any.
    This class wraps its `_train_epoch`, and adds what the steps before the checkpoint contributed.

    Loss sums are saved for every process, metric states for the first process and where others
    differ from it, and running means, which are equal, for the first process.

    # Parameters

    trainer : a trainer that is about to start, with its checkpoint loaded.
    saved : the `state_dict` in that checkpoint; `None` if the run starts with a new epoch.
    """

    def __init__(self, trainer: GradientDescentTrainer, saved: dict[str, Any] | None) -> None:
        self._trainer = trainer
        self._resumed_in = trainer._start_after_epochs_completed
        self._saved = saved
        losses: Any = getattr(trainer, "losses", None)
        self._counts = not isinstance(losses, LossSums)  # the trainer "declutr" counts itself
        self._losses: LossSums = LossSums() if self._counts else losses
        # The step at which all processes were asked, and the sums and metric states of each.
        self._gathered: tuple[int, list[tuple[list[float], dict[str, Any]]]] | None = None
        if saved is not None:
            self._load(saved)
        self._train_epoch = trainer._train_epoch
        trainer._train_epoch = self.train_epoch  # type: ignore[method-assign]

    def add(self, steps: list[Any], outputs: list[Any], metrics: dict[str, float]) -> None:
        """Add the loss and penalty of a training step.

        # Parameters

        steps : the batches of the step.
        outputs : the outputs of the model for them.
        metrics : the metrics of the trainer after the step.
        """
        if self._counts:
            self._losses.loss += metrics["batch_loss"]
            self._losses.steps += 1
            if "reg_loss" in metrics:
                for output in outputs:  # in the trainer's order, for the same rounding
                    self._losses.penalty += (output["reg_loss"] / len(steps)).item()

    def gather(self) -> None:
        """Gather sums and metrics of all processes for a checkpoint, which one process writes.

        All processes must call this after the same step.
        """
        step = self._trainer._total_batches_completed
        states, _ = metric_states(self._trainer.model) if world_size() > 1 else ({}, [])
        self._gathered = step, of_all_processes((self._losses.read(), states))

    def train_epoch(self, epoch: int) -> dict[str, float]:
        """Train an epoch by the trainer's `_train_epoch`, and return metrics of the whole epoch."""
        metrics = self._train_epoch(epoch)
        if epoch >= self._resumed_in:  # earlier epochs are skipped
            if self._saved is not None:
                self._complete(metrics, self._saved)
            self._saved = None
            self._losses.reset()
        return metrics

    def _complete(self, metrics: dict[str, float], saved: dict[str, Any]) -> None:
        """Replace metrics of the steps since resuming by metrics of the whole epoch."""
        model, none_left = self._trainer.model, "loss" not in metrics
        if saved.get("sums") is None:  # the sums before resuming are unknown
            if none_left:
                means = running_means(model)
                metrics.update(means.compute() if means is not None else {})
                if "metrics" in saved:
                    metrics.update(model.get_metrics(reset=True))
                elif means is not None:
                    means.reset()
            return
        (loss, penalty), steps = self._losses.read(), self._losses.steps
        penalized = model.get_regularization_penalty() is not None
        if none_left:
            metrics.update(epoch_metrics(model, loss, penalty if penalized else None, steps))
            return
        of_all = dist_reduce_sum(steps)
        metrics["loss"] = dist_reduce_sum(loss) / of_all
        if penalized:
            metrics["reg_loss"] = dist_reduce_sum(penalty) / of_all

    def state_dict(self) -> dict[str, Any]:
        """Return the sums, running means and metric states for a checkpoint."""
        model = self._trainer.model
        means = running_means(model)
        states, left_out = metric_states(model)
        sums: list[list[float]] | None = [self._losses.read()]
        others: list[dict[str, Any]] | None = []
        if world_size() > 1:
            step, gathered = self._gathered or (None, [])
            known = step == self._trainer._total_batches_completed
            sums = [own for own, _ in gathered] if known else None
            others = [differing_states(own, states) for _, own in gathered[1:]] if known else None
        return {
            "means": None if means is None else means.state_dict(),
            "sums": sums,
            "metrics": states,
            "metrics_of_others": others,
            "left_out": left_out,
        }

    def _load(self, saved: dict[str, Any]) -> None:
        model = self._trainer.model
        means = running_means(model)
        if saved.get("means") is not None and means is not None:
            means.load_state_dict(saved["means"])
        lost = list(saved.get("left_out", metric_states(model)[0]))
        lost += self._load_metrics(saved)
        sums, steps = saved.get("sums"), self._trainer._start_after_batches_in_epoch_completed
        if sums is None:
            lost.append("training_loss")
        elif len(sums) == world_size():
            self._losses.load(sums[process_rank()], steps)
        elif process_rank() == 0:  # other processes then start from zero, as only the total counts
            totals = [sum(column) for column in zip(*sums, strict=True)]
            self._losses.load(totals, steps * len(sums))
        if lost:
            logger.warning(
                f"The checkpoint does not hold what these were at: {', '.join(lost)}. In this "
                "epoch they leave out what came before it."
            )

    def _load_metrics(self, saved: dict[str, Any]) -> list[str]:
        """Load the states of metrics, and return the places of those that lack a process's part."""
        model, sums, rank = self._trainer.model, saved.get("sums"), process_rank()
        states = saved.get("metrics", {})
        # What is not there is not known, or of a run of one process by a release up to 2.4.8.
        alone = sums is not None and len(sums) == 1
        others = saved.get("metrics_of_others", [] if alone else None)
        fits = others is not None and len(others) + 1 == world_size()
        local = {place for one in others or () for place in one} or metrics_of_others(model)
        if others and fits:
            states = states | ({}, *others)[rank]
        elif rank > 0:  # or the part of the first process would be counted once for each
            states = {place: state for place, state in states.items() if place not in local}
        load_metric_states(model, states, self._trainer.cuda_device)
        return [] if fits or others == [] else sorted(local & saved.get("metrics", {}).keys())


def epoch_metrics(model: Any, loss: float, penalty: float | None, batches: int) -> dict[str, float]:
    """Return an epoch's metrics over all processes, and reset the metrics of the model.

    They are the model's own, and `loss` and `reg_loss`: sums over all processes divided by batches.

    # Parameters

    model : the model that was trained or validated.
    loss, penalty : the sums of this process; a penalty of `None` means there is no regularizer.
    batches : the number of batches of this process.
    """
    sums = dist_reduce_sum(loss), None if penalty is None else dist_reduce_sum(penalty)
    return get_metrics(model, *sums, None, None, dist_reduce_sum(batches), reset=True)


def running_means(model: Any) -> RunningMeans | None:
    """Return the running means of a model's training epoch, or `None` if it has none."""
    means = getattr(model, "training_means", None)
    return means if isinstance(means, RunningMeans) else None


def peak_memory() -> dict[str, float]:
    """Return and log the peak memory of processes and GPUs in the previous epoch, in MB."""
    metrics = {}
    for kind, peaks in (("worker", util.peak_cpu_memory()), ("gpu", util.peak_gpu_memory())):
        for number, peak in peaks.items():
            logger.info("Memory of %s %d: %s", kind, number, util.format_size(peak))
            metrics[f"{kind}_{number}_memory_MB"] = peak / (1024 * 1024)
    return metrics
