"""The LearningRateScheduler "piecewise_constant", whose rate drops after given steps."""

from bisect import bisect_left
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

from declutr.training.linear_decay import StepSchedule


@LearningRateScheduler.register("piecewise_constant")
class PiecewiseConstant(StepSchedule):
    """A schedule of constant rates, each for some steps: TensorFlow's `PiecewiseConstantDecay`.

    With boundaries b_1 < b_2 < ... and factors f_0, f_1, ..., step k, counted from 0, has the
    learning rate times f_i, with i the number of boundaries below k.

    # Parameters

    optimizer, num_epochs, num_steps_per_epoch, last_epoch : arguments that the trainer passes.
    boundaries : the last step (from 0) of each factor but the last one, rising.
    factors : what the optimizer's learning rate is multiplied by; one more than boundaries.

    # Raises

    `ConfigurationError` : boundaries do not rise from 0 or above, or their number does not fit.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        boundaries: list[int],
        factors: list[float],
        num_epochs: Optional[int] = None,
        num_steps_per_epoch: Optional[int] = None,
        last_epoch: int = -1,
    ) -> None:
        rising = all(low < high for low, high in zip([-1, *boundaries], boundaries))  # noqa: B905
        if not rising or len(factors) != len(boundaries) + 1:
            raise ConfigurationError(
                "Expected boundaries that rise from 0 or above, and one factor more than "
                f"boundaries; got {boundaries} and {factors}."
            )
        self.boundaries, self.factors = boundaries, factors
        super().__init__(optimizer, last_epoch)

    def factor(self, done: int) -> float:
        return self.factors[bisect_left(self.boundaries, done)]
