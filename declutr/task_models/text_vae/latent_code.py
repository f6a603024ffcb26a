"""The code of a text: a sample of a normal distribution that an encoder gives."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

_VALIDATION_NOISE = 13370  # outside training, so that bounds compare over epochs


class Code(NamedTuple):
    """A sample of q(z|x) and what it was drawn from, each `(n, k)`."""

    sample: torch.Tensor
    mean: torch.Tensor
    log_variance: torch.Tensor


class LatentCode(torch.nn.Module):
    """q(z|x), a normal distribution with a diagonal covariance, from features of a text.

    Outside training the noise is the same in every batch.

    # Parameters

    input_size, latent_size : widths of features and of the code.
    """

    def __init__(self, input_size: int, latent_size: int) -> None:
        super().__init__()
        self._parameters_of = torch.nn.Linear(input_size, 2 * latent_size)

    def get_input_dim(self) -> int:
        return self._parameters_of.in_features

    def get_output_dim(self) -> int:
        """k."""
        return self._parameters_of.out_features // 2

    def forward(self, features: torch.Tensor) -> Code:
        """Of features `(n, input_size)`; the sample has a gradient (Kingma & Welling, 2014)."""
        mean, log_variance = self._parameters_of(features).chunk(2, dim=-1)
        generator = None
        if not self.training:
            generator = torch.Generator(mean.device).manual_seed(_VALIDATION_NOISE)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return Code(mean + noise * (log_variance / 2).exp(), mean, log_variance)


def kl_to_prior(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """KL(q(z|x) || N(0, I)) in nats, dimension by dimension, of the shape of `mean`."""
    return (mean**2 + log_variance.exp() - 1 - log_variance) / 2


def log_densities(
    samples: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor
) -> torch.Tensor:
    """log q(z_i|x_j) `(m, n)` of samples `(m, k)` under each of n normal distributions `(n, k)`."""
    squares = (samples.unsqueeze(1) - mean) ** 2 / log_variance.exp()  # (m, n, k)
    return -(squares + log_variance + math.log(2 * math.pi)).sum(dim=-1) / 2
