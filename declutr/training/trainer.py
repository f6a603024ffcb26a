"""The Trainer "declutr": AllenNLP's, without a wait for the device in a step."""

import logging
import math
from typing import Any, Optional

import torch
from allennlp.common import Tqdm, util
from allennlp.common.checks import ConfigurationError
from allennlp.training import GradientDescentTrainer, Trainer, TrainerCallback
from allennlp.training.trainer import TrainerCheckpoint
from allennlp.training.util import description_from_metrics, get_metrics

from declutr.data.data_loader import DeCLUTRDataLoader
from declutr.models.metrics import READ_EVERY
from declutr.system.distributed import any_process, wait_for_all
from declutr.system.processors import share_processors
from declutr.training.epoch_figures import LossSums, epoch_metrics, peak_memory
from declutr.training.metric_readers import looks_now, may_look, tell_of_waits

logger = logging.getLogger(__name__)


@Trainer.register("declutr", constructor="from_partial_objects")
class DeCLUTRTrainer(GradientDescentTrainer):
    """AllenNLP's "gradient_descent", with a training loop that does not wait for the device.

    It trains the same weights, reports the same metrics, and takes all its parameters. On a GPU,
    losses, metrics and the norm of gradients are read every `read_every` steps: the progress bar
    shows them that often, and a loss that is not a number ends training up to so many steps later,
    but always before metrics of an epoch, a checkpoint or the best weights are made.

    A callback that looks at metrics gets those of its step, for which the host waits. Log writers
    of AllenNLP look at their `summary_interval`, its other callbacks and those of this package
    never. Any other with an `on_batch` is taken to look at every step, unless its class has
    `looks_at_metrics = False`. Who does not look gets what was read last.

    A step still waits with `use_amp` (its scaler of gradients does) and, with several processes,
    once a batch unless the data loader is "declutr", whose processes all have as many. So do some
    objectives: docs/GPU.md lists them.

    # Parameters

    read_every : steps; 10 by default, and 1 on the CPU.

    # Raises

    `ConfigurationError` : `read_every` below 1.
    """

    def __init__(self, *args: Any, read_every: Optional[int] = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if read_every is not None and read_every < 1:
            raise ConfigurationError(f"read_every must be at least 1, got {read_every}.")
        self._read_every = read_every or (1 if self.cuda_device.type == "cpu" else READ_EVERY)
        self.losses = LossSums()
        """Of the current epoch; `exact_resume` lets a resumed one go on from where they were."""
        if hasattr(self.model, "asked_rarely"):
            self.model.asked_rarely = True  # type: ignore[assignment]
        # All processes then have as many batches (`DeCLUTRDataLoader.__len__`), and need not ask
        # each other before every one whether there is another.
        self._equal_batches = isinstance(self.data_loader, DeCLUTRDataLoader)
        self._penalized = False
        self._lookers: list[TrainerCallback] = []
        self._parameters: list[torch.nn.Parameter] = []
        self._metrics: dict[str, float] = {}  # those read last, in this epoch
        self._norm: Optional[float] = None  # of gradients, with them
        self._gradient_norm: Optional[torch.Tensor] = None  # of the last step
        share_processors(self.cuda_device)

    def require_finite(self) -> None:
        """Look at all losses up to now, before something is made of the weights.

        # Raises

        `ValueError` : one of them is not a number; of the model "declutr", not a finite one.
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
        groups = util.lazy_groups_of(iter(self.data_loader), self._num_gradient_accumulation_steps)
        progress = Tqdm.tqdm(groups, total=self._num_groups()) if self._primary else groups
        done_early = False
        for group in progress:
            if done_early:
                break
            if self._was_done(self._batches_in_epoch_completed):
                self._batches_in_epoch_completed += 1
                self._total_batches_completed += 1
                continue
            done_early, outputs = self._train_step(group)
            if outputs:
                self._after_step(epoch, group, outputs, progress)
        if self._distributed:
            if not done_early and not self._equal_batches:
                any_process(True, self.cuda_device)  # tells those that have batches left
            wait_for_all()
        return self._epoch_metrics() | memory

    def _begin_epoch(self) -> None:
        if self._epochs_completed > self._start_after_epochs_completed:  # not one that is resumed
            self.losses.reset()
        self._metrics = {}
        self._penalized = self.model.get_regularization_penalty() is not None
        self._parameters = list(self.model.parameters())  # to find them takes longer than a norm
        self._lookers = [callback for callback in self._callbacks if may_look(callback)]
        if self._read_every > 1 and not self._epochs_completed:
            tell_of_waits(self._lookers)

    def _num_groups(self) -> float:
        try:
            return math.ceil(len(self.data_loader) / self._num_gradient_accumulation_steps)
        except TypeError:
            return math.inf

    def _was_done(self, step: int) -> bool:
        """Whether a step of this epoch was done before the checkpoint that the run resumes from."""
        epoch, resumed_in = self._epochs_completed, self._start_after_epochs_completed
        after = self._start_after_batches_in_epoch_completed
        return epoch < resumed_in or (epoch == resumed_in and step < after)

    def _epoch_metrics(self) -> dict[str, float]:
        if self._was_done(self._batches_in_epoch_completed - 1):
            return {}
        self.require_finite()
        loss, penalty = self.losses.read()
        return epoch_metrics(
            self.model, loss, penalty if self._penalized else None, self._batches_in_epoch_completed
        )

    def _train_step(self, group: list[Any]) -> tuple[bool, list[dict[str, Any]]]:
        """Move the weights by a group of batches; returns whether another process has no more, and
        the outputs of the model."""
        self.optimizer.zero_grad()
        outputs: list[dict[str, Any]] = []
        losses: list[torch.Tensor] = []
        penalties: list[torch.Tensor] = []
        done_early = False
        for batch in group:
            if self._distributed and not self._equal_batches:
                done_early = any_process(False, self.cuda_device)
                if done_early:
                    logger.warning("Another process has no batches left; this one leaves out some.")
                    break
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
        if outputs:
            self._move(losses, penalties)
        return done_early, outputs

    def _backward(self, output: dict[str, Any], loss: torch.Tensor) -> None:
        called = False
        for callback in self._callbacks:
            called |= callback.on_backward(self, output, called)
        if not called and self._scaler is not None:
            self._scaler.scale(output["loss"]).backward()  # not divided, as by AllenNLP
        elif not called:
            loss.backward()

    def _move(self, losses: list[torch.Tensor], penalties: list[torch.Tensor]) -> None:
        """Take a step by the gradients, and count it."""
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
        """`rescale_gradients`, which gives the norm as a number; this leaves it on the device."""
        own = [p for p in self._parameters if p.grad is not None]
        if not self._grad_norm or self._grad_norm is True:
            norms = [torch.norm(p.grad.detach()) for p in own] if self._grad_norm else []  # type: ignore[union-attr]
            return torch.norm(torch.stack(norms)) if norms else None
        if self._scaler is not None:
            self._scaler.unscale_(self.optimizer)
        if self._ddp_wrapped_model is not None:
            return self._ddp_wrapped_model.clip_grad_norm_(self._grad_norm)
        return torch.nn.utils.clip_grad_norm_(own, self._grad_norm)

    def _after_step(
        self, epoch: int, group: list[Any], outputs: list[dict[str, Any]], progress: Any
    ) -> None:
        step = self._batches_in_epoch_completed
        due = not self._metrics or step % self._read_every == 0
        if due or any(looks_now(callback) for callback in self._lookers):
            self._read(step)
        told: dict[str, Any] = {"is_primary": self._primary, "batch_grad_norm": self._norm}
        for callback in self._callbacks:
            callback.on_batch(
                self, group, outputs, self._metrics, epoch, step, is_training=True, **told
            )
        if due and self._primary:
            progress.set_description(description_from_metrics(self._metrics), refresh=False)
        if self._checkpointer is not None:
            self._checkpointer.maybe_save_checkpoint(self, self._epochs_completed, step)

    def _read(self, step: int) -> None:
        """Wait for the device, and have the metrics of the epoch and of this step."""
        self.require_finite()
        loss, penalty = self.losses.read()
        self._norm = None if self._gradient_norm is None else self._gradient_norm.item()
        self._metrics = get_metrics(
            self.model,
            loss,
            penalty if self._penalized else None,
            self.losses.batch_loss,
            self.losses.batch_penalty,
            step,
        )
