"""The weight of the KL term: it grows in the first steps of training."""

from __future__ import annotations

import torch
from allennlp.common.checks import ConfigurationError


class KlWeight(torch.nn.Module):
    """Linear annealing (Bowman et al., 2016): `initial` in the first step of training, 1 from step
    `steps` on. Steps done are in checkpoints.

    # Parameters

    steps : batches until it is 1; 0 for 1 from the first.
    initial : what it begins with.

    # Raises

    `ConfigurationError` : a negative number of steps, or an `initial` outside [0, 1].
    """

    done: torch.Tensor

    def __init__(self, steps: int, initial: float = 0.0) -> None:
        super().__init__()
        if steps < 0 or not 0 <= initial <= 1:
            raise ConfigurationError(
                "Expected annealing_steps of 0 or more and initial_kl_weight in [0, 1], got "
                f"{steps} and {initial}."
            )
        self._steps, self._initial = steps, initial
        self.register_buffer("done", torch.zeros((), dtype=torch.long))

    def forward(self) -> torch.Tensor:
        """The weight of this step, a scalar; in training, the step then counts as done."""
        weight = torch.ones((), device=self.done.device)
        if self._steps:
            share = (self.done / self._steps).clamp_max(1)
            weight = self._initial + (1 - self._initial) * share
        if self.training:
            self.done += 1
        return weight
