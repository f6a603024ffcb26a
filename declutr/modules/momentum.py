"""A copy of the encoder that follows it slowly (MoCo, He et al., 2020; BYOL, Grill et al. 2020)."""

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
    """Copies of modules, without gradients: `copy <- m copy + (1 - m) module` after each step of
    the optimizer (parameters; of buffers, such as running statistics, copies keep their own).

    Before the first step they are equal, so this is also MoCo's order, in which keys of step k are
    encoded with the weights of before that step. Copies and the count of steps go into checkpoints.

    # Parameters

    momentum : m, in [0, 1).
    schedule : `"constant"`, or `"cosine"`, which rises from `momentum` to 1 over the training
        (Grill et al., 2020, section 3.3).
    """

    steps_done: torch.Tensor

    def __init__(self, momentum: float = 0.999, schedule: str = "constant") -> None:
        super().__init__()
        if not 0 <= momentum < 1:
            raise ConfigurationError(f"momentum must lie in [0, 1), got {momentum}.")
        self.momentum, self.schedule = momentum, one_of("schedule", schedule, SCHEDULES)
        self.copies = torch.nn.ModuleDict()
        self._moves = HostCount(self, "steps_done")
        self._originals: dict[str, torch.nn.Module] = {}  # not as parts: they are the model's
        self._total: Optional[int] = None

    def follow(self, modules: Mapping[str, Optional[torch.nn.Module]]) -> None:
        """Copy modules, those that are there; they are named for `__getitem__`."""
        for name, module in modules.items():
            if module is not None:
                self.copies[name] = copy.deepcopy(module).requires_grad_(False)
                self._originals[name] = module

    def __getitem__(self, name: str) -> Any:
        """The copy of that name; `None` if there is none."""
        return dict(self.copies.items()).get(name)

    def follow_trainer(self, trainer: Any) -> None:
        """Follow the optimizer of a trainer, whose data tell how many steps there will be."""
        try:
            batches = len(trainer.data_loader)
        except TypeError:  # a loader that does not know
            steps = None
        else:
            groups = -(-batches // trainer._num_gradient_accumulation_steps)
            steps = groups * trainer._num_epochs
        self.follow_optimizer(trainer.optimizer, steps)

    def follow_optimizer(self, optimizer: torch.optim.Optimizer, steps: Optional[int]) -> None:
        """Move after each step of `optimizer`, of which there will be `steps` (`None`: unknown).

        # Raises

        `ConfigurationError` : a schedule that needs to know.
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
        """One step after the originals."""
        from declutr.objectives import momentum_update, target_momentum  # few models need them

        momentum = self.momentum
        if self.schedule == "cosine":
            assert self._total is not None
            momentum = target_momentum(self._moves.value, self._total, self.momentum)
        copies = (p for name in self._originals for p in self.copies[name].parameters())
        originals = (p for part in self._originals.values() for p in part.parameters())
        momentum_update(copies, originals, momentum)
        self._moves.advance()
