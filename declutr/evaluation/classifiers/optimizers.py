"""Adam and RMSprop for many classifiers at once, some of which may sit out a step.

`torch.optim` knows one step count and one weight decay a tensor. Here each row of the parameters
has its own count, and each parameter its own decay. Values are those of `torch.optim`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

EPSILON = 1e-8


class Optimizer(ABC):
    """# Parameters

    values : parameters `(F, P)`, changed in place by `step`.
    decay : the weight of the L2 penalty of each, `(F, P)`; the penalty's gradient is
        `decay * values`, and goes through the optimiser like the rest, as in `torch.optim`.
    """

    def __init__(self, values: torch.Tensor, decay: torch.Tensor) -> None:
        # One block, so that rows are dropped and put back in one go.
        self._state = torch.stack([values, *[torch.zeros_like(values)] * self.moments])
        self._decay = decay
        self._steps = torch.zeros(len(values), 1, device=values.device)

    moments: int
    """How many running averages there are for each parameter."""

    @property
    def values(self) -> torch.Tensor:
        return self._state[0]

    def step(self, gradient: torch.Tensor, idle: torch.Tensor | None = None) -> None:
        """# Parameters

        gradient : `(F, P)`; overwritten.
        idle : rows, by number, that stay as they are.
        """
        if idle is None:
            self._advance(gradient)
            return
        kept = self._state[:, idle]
        self._advance(gradient)
        self._state[:, idle] = kept
        self._steps[idle] -= 1

    def _advance(self, gradient: torch.Tensor) -> None:
        self._steps += 1
        self._update(gradient.addcmul_(self._decay, self.values))

    def keep(self, rows: torch.Tensor) -> None:
        """Drop all rows but these."""
        self._state, self._decay = self._state[:, rows], self._decay[rows]
        self._steps = self._steps[rows]

    @abstractmethod
    def _update(self, gradient: torch.Tensor) -> None: ...


class Adam(Optimizer):
    """Kingma and Ba (2015), algorithm 1, with torch's default settings."""

    moments = 2

    def __init__(
        self, values: torch.Tensor, decay: torch.Tensor, rate: float = 1e-3, betas=(0.9, 0.999)
    ) -> None:
        super().__init__(values, decay)
        self._rate, self._betas = rate, betas

    def _update(self, gradient: torch.Tensor) -> None:
        values, first, second = self._state
        one, two = self._betas
        first.lerp_(gradient, 1 - one)
        second.mul_(two).addcmul_(gradient, gradient, value=1 - two)
        # (F, 1) corrections of the averages' start at zero.
        scale = self._rate / (1 - one**self._steps)
        spread = second.sqrt().mul_((1 - two**self._steps).rsqrt()).add_(EPSILON)
        values.addcmul_(first.div(spread), scale, value=-1)


class RMSprop(Optimizer):
    """Tieleman and Hinton (2012), with torch's default settings."""

    moments = 1

    def __init__(
        self, values: torch.Tensor, decay: torch.Tensor, rate: float = 1e-2, alpha: float = 0.99
    ) -> None:
        super().__init__(values, decay)
        self._rate, self._alpha = rate, alpha

    def _update(self, gradient: torch.Tensor) -> None:
        values, second = self._state
        second.mul_(self._alpha).addcmul_(gradient, gradient, value=1 - self._alpha)
        values.addcdiv_(gradient, second.sqrt().add_(EPSILON), value=-self._rate)


OPTIMIZERS: dict[str, type[Adam] | type[RMSprop]] = {"adam": Adam, "rmsprop": RMSprop}
"""By the names of SentEval's settings."""
