"""Heads: projections between embeddings and the objective, used in training only."""

from itertools import pairwise
from typing import Optional

import torch
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError


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
    batch_norm : False leaves batch normalisation out, and gives each layer a bias.

    # Raises

    `ConfigurationError` : `hidden_dims` is empty or holds a width below 1.
    """

    def __init__(
        self, input_dim: int, hidden_dims: Optional[list[int]] = None, batch_norm: bool = True
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
        layers.append(torch.nn.Linear(dims[-2], dims[-1], bias=not batch_norm))
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
