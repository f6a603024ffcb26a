"""The normalising flow of BERT-flow: a Glow of actnorm, permutations and additive couplings.

Its layers are those of the public code of Li et al. (2020, arXiv:2011.05864), which reverses the
order of coordinates where the paper speaks of random permutations. Each layer is invertible, and
its log-determinant is exact.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

_FACTOR = 3.0  # scales are exp(3 l): the public code's factor, for larger steps of l
_TINY = 1e-6  # added to the deviation of a coordinate, which might be 0


class ActNorm(torch.nn.Module):
    """A scale and a shift of each coordinate, `(x + b) exp(3 l)` (Kingma & Dhariwal, 2018)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(width))
        self.log_scale = torch.nn.Parameter(torch.zeros(width))
        self.starts = False
        """Whether the next batch sets shift and scale so that it has mean 0 and variance 1."""

    @property
    def log_determinant(self) -> Tensor:
        return _FACTOR * self.log_scale.sum()

    def forward(self, x: Tensor) -> Tensor:
        if self.starts:
            self._start(x.detach())
        return (x + self.shift) * (_FACTOR * self.log_scale).exp()

    def inverse(self, y: Tensor) -> Tensor:
        return y * (-_FACTOR * self.log_scale).exp() - self.shift

    @torch.no_grad()
    def _start(self, x: Tensor) -> None:
        mean = x.mean(dim=0)
        deviation = (x - mean).square().mean(dim=0).sqrt()
        self.shift.copy_(-mean)
        self.log_scale.copy_(-(deviation + _TINY).log() / _FACTOR)
        self.starts = False


class Shift(torch.nn.Module):
    """A small network from the first half of the coordinates to what is added to the second.

    Its last layer is 0 at first, so that the flow begins without shifts.
    """

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(inputs, width, bias=False)
        self.first_norm = ActNorm(width)
        self.second = torch.nn.Linear(width, width, bias=False)
        self.second_norm = ActNorm(width)
        self.last = torch.nn.Linear(width, outputs)
        self.log_scale = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first_norm(self.first(x)).relu()
        x = self.second_norm(self.second(x)).relu()
        return self.last(x) * (_FACTOR * self.log_scale).exp()


class FlowStep(torch.nn.Module):
    """A step of the flow: actnorm, the reversed order of coordinates, an additive coupling."""

    def __init__(self, dimension: int, width: int) -> None:
        super().__init__()
        self._split = dimension // 2
        self.norm = ActNorm(dimension)
        self.shift = Shift(self._split, width, dimension - self._split)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x).flip(-1)
        first, second = x[:, : self._split], x[:, self._split :]
        return torch.cat([first, second + self.shift(first)], dim=1)

    def inverse(self, y: Tensor) -> Tensor:
        first, second = y[:, : self._split], y[:, self._split :]
        x = torch.cat([first, second - self.shift(first)], dim=1)
        return self.norm.inverse(x.flip(-1))


class FlowNetwork(torch.nn.Module):
    """A flow of L levels of K steps each, from `(n, d)` to latent vectors `(n, d)` and back.

    After each level but the last, the second half of the coordinates is finished, and the first
    half goes on to the next level. The latent vector begins with what the first level finished.

    # Parameters

    dimension : d, at least `2 ** levels`.
    levels, depth : L and K.
    width : the width of the networks of the couplings.

    # Raises

    `ValueError` : a setting is below 1, or there are too few dimensions for the levels.
    """

    def __init__(self, dimension: int, levels: int, depth: int, width: int) -> None:
        super().__init__()
        if min(levels, depth, width) < 1:
            raise ValueError(
                "levels, depth and width of a flow must be at least 1, got "
                f"{levels}, {depth} and {width}."
            )
        if dimension < 2**levels:
            raise ValueError(
                f"A flow of {levels} levels needs embeddings of at least {2**levels} dimensions, "
                f"got {dimension}. Take fewer levels."
            )
        self.dimension = dimension
        self.levels = torch.nn.ModuleList()
        for _ in range(levels):
            self.levels.append(
                torch.nn.ModuleList(FlowStep(dimension, width) for _ in range(depth))
            )
            dimension //= 2

    @torch.no_grad()
    def draw(self, generator: torch.Generator) -> None:
        """Draw the weights that training begins with; the first batch then sets every actnorm."""
        for parameter in self.parameters():
            parameter.zero_()
        for module in self.modules():
            if isinstance(module, Shift):
                for layer in (module.first, module.second):
                    layer.weight.normal_(0, 0.05, generator=generator)
            elif isinstance(module, ActNorm):
                module.starts = True

    @property
    def log_determinant(self) -> Tensor:
        """The log of the determinant of the Jacobian of `forward`, the same for all inputs."""
        norms = [step.norm.log_determinant for level in self.levels for step in level]  # type: ignore[attr-defined]
        return torch.stack(norms).sum()

    def forward(self, x: Tensor) -> Tensor:
        """Return the latent vectors `(n, d)` of embeddings `(n, d)`."""
        finished = []
        for number, level in enumerate(self.levels):
            if number:
                half = x.size(1) // 2
                finished.append(x[:, half:])
                x = x[:, :half]
            for step in level:  # type: ignore[attr-defined]
                x = step(x)
        return torch.cat([*finished, x], dim=1)

    def inverse(self, z: Tensor) -> Tensor:
        """Return the embeddings `(n, d)` of latent vectors `(n, d)`."""
        sizes, left = [], self.dimension
        for _ in range(len(self.levels) - 1):
            sizes.append(left - left // 2)
            left //= 2
        *finished, x = z.split([*sizes, left], dim=1)
        for number, level in reversed(list(enumerate(self.levels))):
            for step in reversed(level):  # type: ignore[arg-type, call-overload]
                x = step.inverse(x)
            if number:
                x = torch.cat([x, finished[number - 1]], dim=1)
        return x

    def bits(self, x: Tensor) -> Tensor:
        """Return the negative log-likelihood `(n,)` of embeddings, in bits for each dimension.

        The latent vectors are standard normal: with z of x, it is
        `(|z|^2 / 2 + d log(2 pi) / 2 - log |det dz/dx|) / (d log 2)`.
        """
        d = self.dimension
        squares = self(x).square().sum(dim=1)
        nats = squares / 2 + d * math.log(2 * math.pi) / 2 - self.log_determinant
        return nats / (d * math.log(2))
