"""The LearningRateScheduler "linear_decay": the default schedule of transformers' `Trainer`."""

import math
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler


class StepSchedule(LearningRateScheduler):
    """A base class of schedules that set the rates of each step by its number.

    A schedule counts the calls of `step_batch`, so that as a part of "combined" it begins at its
    first step. A subclass implements `factor`, and has all it needs for it before it calls
    `__init__` of this class.

    # Parameters

    optimizer, last_epoch : arguments of every scheduler of AllenNLP.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, last_epoch: int = -1) -> None:
        super().__init__(optimizer, last_epoch)
        self.updates = 0  # steps begun so far
        self._set_rates()

    def factor(self, done: int) -> float:
        """Return what the rates of the step after `done` others are multiplied by."""
        raise NotImplementedError

    def get_values(self) -> list[float]:
        """Return the rates of the step that was begun last; at the start, those of the first step.

        There is one rate for each parameter group of the optimizer.
        """
        factor = self.factor(max(0, self.updates - 1))
        return [rate * factor for rate in self.base_values]

    def step(self, metric: Optional[float] = None) -> None:
        """Do nothing: the rates change at every step, not at the end of an epoch."""

    def step_batch(self, batch_num_total: Optional[int] = None) -> None:
        """Set the rates of the step that the optimizer is about to take.

        The trainer's `batch_num_total` is ignored, because it counts the steps of the whole run.
        """
        self.updates += 1
        self._set_rates()

    def _set_rates(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.get_values(), strict=True):
            group[self.param_group_field] = rate


@LearningRateScheduler.register("linear_decay")
class LinearDecay(StepSchedule):
    """A schedule with a linear warmup and a linear decay of the learning rate to 0.

    Step k of T, counted from 0, has the learning rate times k / W while k < W, and then times
    (T - k) / (T - W), where W is `warmup_share * T`, rounded up. These are the rates of
    transformers' `get_linear_schedule_with_warmup`. The rates of AllenNLP's `linear_with_warmup`
    are one step ahead, because its trainer calls schedulers before the optimizer: its last step has
    the rate 0.

    # Parameters

    optimizer, num_epochs, num_steps_per_epoch : arguments that the trainer passes.
    warmup_share : W / T, in [0, 1]. By default there is no warmup, as in the `Trainer`.
    last_epoch : an argument of every scheduler of AllenNLP.

    # Raises

    `ConfigurationError` : `warmup_share` is out of range, or the data loader has no length.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        num_epochs: int,
        num_steps_per_epoch: Optional[int] = None,
        warmup_share: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= warmup_share <= 1:
            raise ConfigurationError(f"warmup_share must be in [0, 1], got {warmup_share}.")
        if num_steps_per_epoch is None:
            raise ConfigurationError(
                'The schedule "linear_decay" needs to know the number of steps, which this data '
                'loader does not tell: use the data loader "declutr".'
            )
        self.total_steps = num_epochs * num_steps_per_epoch
        self.warmup_steps = math.ceil(self.total_steps * warmup_share)
        super().__init__(optimizer, last_epoch)

    def factor(self, done: int) -> float:
        if done < self.warmup_steps:
            return done / self.warmup_steps
        left = self.total_steps - done
        return max(0, left) / max(1, self.total_steps - self.warmup_steps)
