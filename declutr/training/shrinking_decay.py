"""The LearningRateScheduler "shrinking_decay": InferSent's schedule."""

import math
from typing import Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler


@LearningRateScheduler.register("shrinking_decay")
class ShrinkingDecay(LearningRateScheduler):
    """A schedule that decays every epoch, and shrinks when the validation metric does not rise.

    After each epoch, rates are divided by `shrink` unless the metric is the best so far, and
    multiplied by `decay` (Conneau et al., 2017, section 3.3, as the public code of InferSent does
    it). The metric, and that higher is better, is `validation_metric` of the trainer.

    # Parameters

    optimizer : an argument that the trainer passes.
    decay : the factor of every epoch, above 0 and at most 1.
    shrink : the divisor, at least 1.
    last_epoch : an argument of every scheduler of AllenNLP.

    # Raises

    `ConfigurationError` : `decay` or `shrink` is out of range, or, at the end of an epoch, there is
        no validation metric.
    """

    needs_validation = True
    """Whether a trainer must have validation data; the model "declutr" checks it at the start."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        decay: float = 0.99,
        shrink: float = 5.0,
        last_epoch: int = -1,
    ) -> None:
        super().__init__(optimizer, last_epoch)
        if not (0 < decay <= 1 and shrink >= 1):
            raise ConfigurationError(
                "decay must be above 0 and at most 1, and shrink at least 1; got "
                f"{decay} and {shrink}."
            )
        self.decay, self.shrink = decay, shrink
        self.best, self.factor = -math.inf, 1.0

    def get_values(self) -> list[float]:
        """Return the rates of the epoch that comes next, one for each parameter group."""
        return [rate * self.factor for rate in self.base_values]

    def step(self, metric: Optional[float] = None) -> None:
        """Set the rates of the next epoch, given the validation metric of the last one."""
        if metric is None:
            raise ConfigurationError(
                'The schedule "shrinking_decay" looks at the validation metric of every epoch: set '
                "validation_data_path."
            )
        if metric > self.best:
            self.best = metric
        else:
            self.factor /= self.shrink
        self.factor *= self.decay
        super().step(metric)
