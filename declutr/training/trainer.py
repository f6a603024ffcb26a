"""The Trainer "declutr": AllenNLP's trainer, without a wait for the device in each step."""

import logging
import math
from functools import partial
from typing import Any, Optional

import torch
from allennlp.common import Tqdm, util
from allennlp.common.checks import ConfigurationError
from allennlp.training import (
    GradientDescentTrainer,
    Trainer,
    TrainerCallback,
    gradient_descent_trainer,
)
from allennlp.training.trainer import TrainerCheckpoint
from allennlp.training.util import description_from_metrics, get_metrics

from declutr.bridge.resumption import was_taken
from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.models.metrics import READ_EVERY
from declutr.system.distributed import groups_of_processes, of_all_processes, wait_for_all
from declutr.system.processors import share_processors
from declutr.training.epoch_figures import LossSums, epoch_metrics, peak_memory
from declutr.training.metric_readers import looks_now, may_look, tell_of_waits

logger = logging.getLogger(__name__)


@Trainer.register("declutr", constructor="from_partial_objects")
class DeCLUTRTrainer(GradientDescentTrainer):
    """A trainer like AllenNLP's "gradient_descent" whose steps do not wait for the device.

    It takes the same parameters, trains the same weights and reports the same metrics. On a GPU,
    losses, metrics and the norm of gradients are read every `read_every` steps. The progress bar
    shows them that often, and a loss that is not a number ends training up to `read_every` steps
    later, but always before the metrics of an epoch, a checkpoint or the best weights are written.

    A callback that reads metrics gets the metrics of its step, for which the host waits. AllenNLP's
    log writers read metrics at their `summary_interval`. Its other callbacks, and those of this
    package, do not read them. Any other callback with an `on_batch` is assumed to read them at
    every step, unless its class has the attribute `looks_at_metrics = False`. A callback that does
    not read metrics is given those that were read last.

    Steps still wait with `use_amp`, whose gradient scaler reads the device, and with some
    objectives, which docs/GPU.md lists. With several processes they wait for each other, unless the
    data loader is "declutr", which gives every process the same number of batches. With another
    one, an epoch ends where the first process has no batches left, and its last step has as many
    batches in every process as in the one with the fewest.

    # Parameters

    read_every : the number of steps between two reads; by default 10, or 1 on the CPU.
    args, kwargs : the parameters of AllenNLP's `GradientDescentTrainer`.

    # Raises

    `ConfigurationError` : `read_every` is below 1, or a key is none that the trainer takes.
    """

    refuses_other_keys = True  # as all classes but AllenNLP's trainer do: see `declutr.bridge`

    def __init__(self, *args: Any, read_every: Optional[int] = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for sign, name in self._metric_tracker.tracked_metrics:
            if sign > 0 and name.endswith("loss"):
                logger.warning(
                    f"validation_metric is '+{name}', so that the epoch with the highest {name} is "
                    f"the best one. Write '-{name}' for the lowest."
                )
        if read_every is not None and read_every < 1:
            raise ConfigurationError(f"read_every must be at least 1, got {read_every}.")
        self._read_every = read_every or (1 if self.cuda_device.type == "cpu" else READ_EVERY)
        self.losses = LossSums()
        """The losses of the current epoch, which `exact_resume` restores in a resumed run."""
        if hasattr(self.model, "asked_rarely"):
            self.model.asked_rarely = True  # type: ignore[assignment]
        # This loader gives every process the same number of batches, so processes need not ask each
        # other before every step whether there is another one.
        self._equal_batches = isinstance(self.data_loader, DeCLUTRDataLoader)
        self._penalized = False
        self._lookers: list[TrainerCallback] = []
        self._parameters: list[torch.nn.Parameter] = []
        self._metrics: dict[str, float] = {}  # the metrics of this epoch that were read last
        self._norm: Optional[float] = None  # the norm of gradients that was read with them
        self._gradient_norm: Optional[torch.Tensor] = None  # in the last step, on the device
        share_processors(self.cuda_device)

    def require_finite(self) -> None:
        """Raise if a loss up to now is not a number; called before the weights are used or saved.

        # Raises

        `ValueError` : a loss is not a number, or, with the model "declutr", not a finite number.
        """
        if hasattr(self.model, "require_finite"):
            self.model.require_finite()  # type: ignore[operator]
        self.losses.read()

    def get_checkpoint_state(self) -> Optional[TrainerCheckpoint]:
        self.require_finite()
        return super().get_checkpoint_state()

    def _train_epoch(self, epoch: int) -> dict[str, float]:
        logger.info("Epoch %d/%d", epoch, self._num_epochs - 1)
        memory = peak_memory()
        self._begin_epoch()
        self._pytorch_model.train()
        logger.info("Training")
        size = self._num_gradient_accumulation_steps
        groups = util.lazy_groups_of(iter(self.data_loader), size)
        if self._distributed and not self._equal_batches:
            groups = groups_of_processes(groups, size, self.cuda_device, partial(was_taken, self))
        progress = Tqdm.tqdm(groups, total=self._num_groups()) if self._primary else groups
        for group in progress:
            if was_taken(self):
                self._batches_in_epoch_completed += 1
                self._total_batches_completed += 1
            else:
                self._after_step(epoch, group, self._train_step(group), progress)
        if self._distributed:
            wait_for_all()
            if self._epochs_completed < self._start_after_epochs_completed:
                # The process with the fewest batches had ended this epoch for all of them.
                counted, before = self._batches_in_epoch_completed, self._total_batches_completed
                done = min(of_all_processes(counted))
                self._total_batches_completed = before - counted + done
        return self._epoch_metrics() | memory

    def _begin_epoch(self) -> None:
        # A resumed epoch keeps the losses of the steps before.
        if self._epochs_completed > self._start_after_epochs_completed:
            self.losses.reset()
        self._metrics = {}
        self._penalized = self.model.get_regularization_penalty() is not None
        self._parameters = list(self.model.parameters())  # listing them is slow
        self._lookers = [callback for callback in self._callbacks if may_look(callback)]
        if self._read_every > 1 and not self._epochs_completed:
            tell_of_waits(self._lookers)

    def _num_groups(self) -> float:
        try:
            return math.ceil(len(self.data_loader) / self._num_gradient_accumulation_steps)
        except TypeError:
            return math.inf

    def _epoch_metrics(self) -> dict[str, float]:
        if was_taken(self, before=1):
            return {}
        self.require_finite()
        loss, penalty = self.losses.read()
        penalties = penalty if self._penalized else None
        return epoch_metrics(self.model, loss, penalties, self.losses.steps)

    def _train_step(self, group: list[Any]) -> list[dict[str, Any]]:
        """Take a step with a group of batches, and return the outputs of the model for it."""
        self.optimizer.zero_grad()
        outputs: list[dict[str, Any]] = []
        losses: list[torch.Tensor] = []
        penalties: list[torch.Tensor] = []
        self._batches_in_step = len(group)  # for AllenNLP's callback "mixed_precision_backward"
        for batch in group:
            with torch.autocast("cuda", torch.float16, enabled=self._use_amp):
                output = self.batch_outputs(batch, for_training=True)
                if self._read_every == 1 and torch.isnan(output["loss"]):
                    raise ValueError("nan loss encountered")
                loss = output["loss"] / len(group)
                if output.get("reg_loss") is not None:
                    penalties.append(output["reg_loss"].detach() / len(group))
            outputs.append(output)
            losses.append(loss.detach())
            self._backward(output, loss)
        self._move(losses, penalties)
        return outputs

    def _backward(self, output: dict[str, Any], loss: torch.Tensor) -> None:
        called = False
        for callback in self._callbacks:
            called |= callback.on_backward(self, output, called)
        if not called and self._scaler is not None:
            self._scaler.scale(loss).backward()
        elif not called:
            loss.backward()

    def _move(self, losses: list[torch.Tensor], penalties: list[torch.Tensor]) -> None:
        """Update the weights by the gradients, and count the step."""
        step = self._total_batches_completed + 1
        self.losses.add(self._batches_in_epoch_completed + 1, losses, penalties)
        self._gradient_norm = self._rescaled()
        self.clip_gradient()
        for scheduler in (self._learning_rate_scheduler, self._momentum_scheduler):
            if scheduler:
                scheduler.step_batch(step)
        if self._scaler is not None:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        else:
            self.optimizer.step()
        if self._moving_average is not None:
            self._moving_average.apply(step)
        self._batches_in_epoch_completed += 1
        self._total_batches_completed += 1

    def _rescaled(self) -> Optional[torch.Tensor]:
        """Clip gradients as `rescale_gradients` does, but return their norm as a tensor."""
        own = [p for p in self._parameters if p.grad is not None]
        if not self._grad_norm or self._grad_norm is True:
            norms = [torch.norm(p.grad.detach()) for p in own] if self._grad_norm else []  # type: ignore[union-attr]
            if not norms:
                return None
            norm = torch.norm(torch.stack(norms))
            return norm if self._scaler is None else norm / self._scaler.get_scale()
        if self._scaler is not None:
            self._scaler.unscale_(self.optimizer)
        if self._ddp_wrapped_model is not None:
            return self._ddp_wrapped_model.clip_grad_norm_(self._grad_norm)
        # Of AllenNLP's module, where the bridge lets it take sparse gradients.
        return gradient_descent_trainer.clip_grad_norm_(own, self._grad_norm)

    def _after_step(
        self, epoch: int, group: list[Any], outputs: list[dict[str, Any]], progress: Any
    ) -> None:
        step = self._batches_in_epoch_completed
        due = not self._metrics or step % self._read_every == 0
        if due or any(looks_now(callback) for callback in self._lookers):
            self._read()
        told: dict[str, Any] = {"is_primary": self._primary, "batch_grad_norm": self._norm}
        for callback in self._callbacks:
            callback.on_batch(
                self, group, outputs, self._metrics, epoch, step, is_training=True, **told
            )
        if due and self._primary:
            progress.set_description(description_from_metrics(self._metrics), refresh=False)
        if self._checkpointer is not None:
            self._checkpointer.maybe_save_checkpoint(self, self._epochs_completed, step)

    def _read(self) -> None:
        """Wait for the device, and update the metrics of the epoch and of this step."""
        self.require_finite()
        loss, penalty = self.losses.read()
        self._norm = None if self._gradient_norm is None else self._gradient_norm.item()
        sums = loss, penalty if self._penalized else None
        of_step = self.losses.batch_loss, self.losses.batch_penalty
        self._metrics = get_metrics(self.model, *sums, *of_step, self.losses.steps)
