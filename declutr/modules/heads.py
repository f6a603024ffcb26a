"""Beside an encoder in training: projections of embeddings (heads), and its moving average.

For the latter see MoCo (He et al., 2020) and BYOL (Grill et al., 2020).
"""

import copy
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Optional

import torch
from allennlp.common import FromParams, Registrable
from allennlp.common.checks import ConfigurationError

from declutr.objectives.numerics import HostCount, one_of
from declutr.system.distributed import of_all_processes

SCHEDULES = ("constant", "cosine")


class Head(torch.nn.Module, Registrable):
    """A module that projects embeddings `(N, d)` to `(N, m)`; register subclasses under a name.

    A head is given the embeddings of all processes, one view at a time, so that batch statistics
    are computed over the whole batch.

    # Parameters

    input_dim : d.
    output_dim : m.
    """

    default_implementation = "projector"

    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__()
        self.input_dim, self.output_dim = input_dim, output_dim


@Head.register("projector")
class Projector(Head):
    """A multilayer perceptron: linear layers with batch normalisation and ReLU between them.

    With the default of three layers of width 4096, it is the projector of SCD (Klein & Nabi, 2022,
    section 3.1) and of Barlow Twins (Zbontar et al., 2021, section 2.2); with `[4096, 256]` it is
    the projector of BYOL (Grill et al., 2020).

    # Parameters

    input_dim : d; the model sets it.
    hidden_dims : the widths of all layers. The last one is m.
    batch_norm : False leaves batch normalisation between layers out, and gives each layer a bias.
    last_batch_norm : True normalises what the last layer gives, without scale and offset, as the
        projector of SimSiam does in its public code (Chen & He, 2021).
    last_bias : whether the last layer has a bias; by default only if there is no batch
        normalisation at all.

    # Raises

    `ConfigurationError` : `hidden_dims` is empty or holds a width below 1.
    """

    def __init__(
        self,
        input_dim: int,
        hidden_dims: Optional[list[int]] = None,
        batch_norm: bool = True,
        last_batch_norm: bool = False,
        last_bias: Optional[bool] = None,
    ) -> None:
        widths = [4096, 4096, 4096] if hidden_dims is None else hidden_dims
        if not widths or min(widths) < 1:
            raise ConfigurationError(f"hidden_dims must hold widths of at least 1, got {widths}.")
        super().__init__(input_dim, widths[-1])
        layers: list[torch.nn.Module] = []
        dims = [input_dim, *widths]
        for before, after in pairwise(dims[:-1]):
            # Batch normalisation subtracts the mean, so a bias before it would have no effect.
            layers.append(torch.nn.Linear(before, after, bias=not batch_norm))
            if batch_norm:
                layers.append(torch.nn.BatchNorm1d(after))
            layers.append(torch.nn.ReLU())
        bias = not (batch_norm or last_batch_norm) if last_bias is None else last_bias
        layers.append(torch.nn.Linear(dims[-2], dims[-1], bias=bias))
        if last_batch_norm:
            layers.append(torch.nn.BatchNorm1d(dims[-1], affine=False))
        self.layers = torch.nn.Sequential(*layers)

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        return self.layers(embeddings)


@Head.register("tanh")
class Tanh(Head):
    """A linear layer `(d, d)` with tanh: the head of SimCSE (Gao et al., 2021, section 6.3).

    # Parameters

    input_dim : d; the model sets it.
    """

    def __init__(self, input_dim: int) -> None:
        super().__init__(input_dim, input_dim)
        self.linear = torch.nn.Linear(input_dim, input_dim)

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        return self.linear(embeddings).tanh()


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
            batches = min(of_all_processes(batches))  # then the epoch ends for all
            in_step = trainer._num_gradient_accumulation_steps or batches  # null: the whole epoch
            steps = -(-batches // in_step) * trainer._num_epochs
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
