"""A moving average of the encoder (MoCo, He et al., 2020; BYOL, Grill et al., 2020)."""

import copy
from collections.abc import Mapping
from typing import Any, Optional

import torch
from allennlp.common import FromParams
from allennlp.common.checks import ConfigurationError

from declutr.objectives.checks import one_of
from declutr.objectives.numerics import HostCount

SCHEDULES = ("constant", "cosine")


class MomentumEncoder(torch.nn.Module, FromParams):
    """Copies of modules that are exponential moving averages of them, without gradients.

    After each step, the parameters are updated by `copy <- m copy + (1 - m) module`. Buffers, such
    as running statistics, are not averaged: each copy has its own. Copies and modules are equal
    before the first step, so the keys of step k are encoded with weights from before that step, as
    in MoCo. The copies and the number of steps are saved in checkpoints.

    # Parameters

    momentum : m, in [0, 1).
    schedule : `"constant"`, or `"cosine"`, which raises m from `momentum` to 1 over the training
        (Grill et al., 2020, section 3.3).

    # Raises

    `ConfigurationError` : the momentum is out of range, or the schedule is unknown.
    """

    steps_done: torch.Tensor

    def __init__(self, momentum: float = 0.999, schedule: str = "constant") -> None:
        super().__init__()
        if not 0 <= momentum < 1:
            raise ConfigurationError(f"momentum must lie in [0, 1), got {momentum}.")
        self.momentum, self.schedule = momentum, one_of("schedule", schedule, SCHEDULES)
        self.copies = torch.nn.ModuleDict()
        self._moves = HostCount(self, "steps_done")
        self._originals: dict[str, torch.nn.Module] = {}  # not submodules, as the model owns them
        self._total: Optional[int] = None

    def follow(self, modules: Mapping[str, Optional[torch.nn.Module]]) -> None:
        """Copy the modules that are not `None`, under the names that `__getitem__` takes."""
        for name, module in modules.items():
            if module is not None:
                self.copies[name] = copy.deepcopy(module).requires_grad_(False)
                self._originals[name] = module

    def __getitem__(self, name: str) -> Any:
        """Return the copy of a module by its name, or `None`."""
        return dict(self.copies.items()).get(name)

    def follow_trainer(self, trainer: Any) -> None:
        """Update the copies after each step of a trainer, for as many steps as its data give.

        # Raises

        `ConfigurationError` : the schedule needs the number of steps, which is unknown.
        """
        try:
            batches = len(trainer.data_loader)
        except TypeError:  # the loader does not know its length
            steps = None
        else:
            groups = -(-batches // trainer._num_gradient_accumulation_steps)
            steps = groups * trainer._num_epochs
        self.follow_optimizer(trainer.optimizer, steps)

    def follow_optimizer(self, optimizer: torch.optim.Optimizer, steps: Optional[int]) -> None:
        """Update the copies after each step of an optimizer.

        # Parameters

        optimizer : the optimizer of the modules.
        steps : the number of steps in the whole training; `None` if it is unknown.

        # Raises

        `ConfigurationError` : the schedule needs the number of steps, which is unknown.
        """
        if self.schedule == "cosine" and not steps:
            raise ConfigurationError(
                'The schedule "cosine" of the momentum encoder needs to know the number of steps: '
                'use the data loader "declutr", or the schedule "constant".'
            )
        self._total = steps
        optimizer.register_step_post_hook(lambda *_: self.move())

    @torch.no_grad()
    def move(self) -> None:
        """Update the copies by one step towards the modules."""
        from declutr.objectives import momentum_update, target_momentum  # few models need them

        momentum = self.momentum
        if self.schedule == "cosine":
            assert self._total is not None
            momentum = target_momentum(self._moves.value, self._total, self.momentum)
        copies = (p for name in self._originals for p in self.copies[name].parameters())
        originals = (p for part in self._originals.values() for p in part.parameters())
        momentum_update(copies, originals, momentum)
        self._moves.advance()
