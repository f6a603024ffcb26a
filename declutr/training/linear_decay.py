"""The learning rate schedule of transformers' `Trainer`, step by step."""

import math
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler


@LearningRateScheduler.register("linear_decay")
class LinearDecay(LearningRateScheduler):
    """A rate that rises from 0 over a share of all updates, if there is one, and falls to 0.

    Update k of T, counted from 0, has the rate times k / W while k < W, and then times
    (T - k) / (T - W), where W is `warmup_share` of T, rounded up. That is what transformers'
    `get_linear_schedule_with_warmup` gives, where a scheduler steps after the optimizer. AllenNLP's
    `linear_with_warmup` is one update ahead of it, as its trainer steps schedulers first: its last
    update has the rate 0.

    It counts the updates that it is told of, so that as a part of "combined" it begins when its
    turn comes.

    # Parameters

    optimizer, num_epochs, num_steps_per_epoch : given by the trainer, not in a configuration.
    warmup_share : W / T, in [0, 1]. The default is that of the `Trainer`: the rate falls from the
        first update on.

    # Raises

    `ConfigurationError` : a share that is none, or a data loader that does not know its length.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        num_epochs: int,
        num_steps_per_epoch: Optional[int] = None,
        warmup_share: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        super().__init__(optimizer, last_epoch)
        if not 0 <= warmup_share <= 1:
            raise ConfigurationError(f"warmup_share must be in [0, 1], got {warmup_share}.")
        if num_steps_per_epoch is None:
            raise ConfigurationError(
                'The schedule "linear_decay" needs to know the number of steps, which this data '
                'loader does not tell: use the data loader "declutr".'
            )
        self.total_steps = num_epochs * num_steps_per_epoch
        self.warmup_steps = math.ceil(self.total_steps * warmup_share)
        self.updates = 0  # that were begun
        self._set_rates()

    def get_values(self) -> list[float]:
        """The rates of parameter groups in the update that was begun last; at first, that of the
        first one."""
        done = max(0, self.updates - 1)
        if done < self.warmup_steps:
            factor = done / self.warmup_steps
        else:
            left = self.total_steps - done
            factor = max(0, left) / max(1, self.total_steps - self.warmup_steps)
        return [rate * factor for rate in self.base_values]

    def step(self, metric: Optional[float] = None) -> None:
        """Nothing happens at the end of an epoch."""

    def step_batch(self, batch_num_total: Optional[int] = None) -> None:
        """Set the rates of the next update, which is about to be made.

        The trainer's number of it does not count: that is of the whole run.
        """
        self.updates += 1
        self._set_rates()

    def _set_rates(self) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.get_values(), strict=True):
            group[self.param_group_field] = rate
