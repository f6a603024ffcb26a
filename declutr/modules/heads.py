"""What stands between embeddings and an objective, in training only."""

from itertools import pairwise
from typing import Optional

import torch
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError


class Head(torch.nn.Module, Registrable):
    """Embeddings `(N, d)` to projections `(N, m)`; register subclasses under a name.

    A head sees the rows of all processes, one view at a time, so that statistics of a batch are
    those of the whole batch.
    """

    default_implementation = "projector"

    def __init__(self, input_dim: int, output_dim: int) -> None:
        super().__init__()
        self.input_dim, self.output_dim = input_dim, output_dim


@Head.register("projector")
class Projector(Head):
    """Linear layers with batch normalisation and ReLU between them, and a plain linear one at last.

    With three layers of 4096 it is SCD's (Klein & Nabi, 2022, section 3.1) and Barlow Twins'
    (Zbontar et al., 2021, section 2.2); with `[4096, 256]` that of BYOL (Grill et al., 2020).

    # Parameters

    hidden_dims : the widths of all layers, the last being m.
    input_dim : d; filled in by the model.
    batch_norm : False leaves the normalisation out.
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
            # A bias before batch normalisation would be subtracted again.
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
    """A linear layer of the width of embeddings, and tanh: SimCSE's, which is used in training only
    (Gao et al., 2021, section 6.3).

    # Parameters

    input_dim : d; filled in by the model.
    """

    def __init__(self, input_dim: int) -> None:
        super().__init__(input_dim, input_dim)
        self.linear = torch.nn.Linear(input_dim, input_dim)

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        return self.linear(embeddings).tanh()
