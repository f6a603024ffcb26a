"""Distributions q(z|x) of the latent code of a text, and their divergences from the prior."""

import math
from typing import NamedTuple

import torch
from allennlp.common import Registrable

_ROWS = 64  # rows of an (n, n, k) comparison that are computed at a time
_VALIDATION_NOISE = 13370  # a fixed seed outside training, so that epochs can be compared


class Code(NamedTuple):
    """A sample of q(z|x) with the mean and log variance of the distribution, each `(n, k)`."""

    sample: torch.Tensor
    mean: torch.Tensor
    log_variance: torch.Tensor


class Divergence(NamedTuple):
    """The cost of q(z|x) in nats.

    # Parameters

    kl : KL(q(z|x) || p(z)) of each text, `(n, j)`; its sum over the last dimension counts.
    penalty : what the loss weighs, `(n, j)`; the same, or KL(q(z) || p(z)).
    learning : a scalar of value 0, whose gradient trains what estimates the divergence.
    information : the mutual information of texts and codes, a scalar; `None` in training.
    """

    kl: torch.Tensor
    penalty: torch.Tensor
    learning: torch.Tensor
    information: torch.Tensor | None


class Posterior(torch.nn.Module, Registrable):
    """A layer that samples a code of each text from q(z|x); register subclasses under a name.

    AllenNLP builds it from the keys of a configuration and from `input_size` and `latent_size`,
    which the model gives.

    # Parameters

    input_size : the number of features of a text.
    latent_size : k, the number of dimensions of a code.
    """

    default_implementation = "gaussian"

    per_dimension: bool = False
    """Whether the KL term is known for each dimension of the code, as free bits need it."""

    def __init__(self, input_size: int, latent_size: int) -> None:
        super().__init__()
        self._input_size, self._latent_size = input_size, latent_size

    def get_input_dim(self) -> int:
        """Return the number of features of a text."""
        return self._input_size

    def get_output_dim(self) -> int:
        """Return k, the number of dimensions of the code."""
        return self._latent_size

    def forward(self, features: torch.Tensor) -> Code:
        """Return the codes of texts, given their features `(n, input_size)`."""
        raise NotImplementedError

    def divergence(self, code: Code, features: torch.Tensor) -> Divergence:
        """Return the divergence of the distributions from the prior, a standard normal one."""
        raise NotImplementedError

    def scale(self, code: Code) -> torch.Tensor:
        """Return the Cholesky factor of the covariance of each code, `(n, k, k)` or `(k, k)`.

        With `code.mean` it is a normal distribution near q(z|x), for importance sampling.
        """
        return torch.diag_embed((code.log_variance / 2).exp())

    def noise(self, like: torch.Tensor, *shape: int, stream: int = 0) -> torch.Tensor:
        """Return standard normal numbers of a shape, on the device and of the type of `like`.

        Outside training they are the same in every call with the same shape and `stream`.
        """
        generator = None
        if not self.training:
            generator = torch.Generator(like.device).manual_seed(_VALIDATION_NOISE + stream)
        return torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)


@Posterior.register("gaussian")
class LatentCode(Posterior):
    """A layer that computes q(z|x), a normal distribution with diagonal covariance, and samples it.

    Outside training the noise is the same in every batch.

    # Parameters

    input_size : the number of features of a text.
    latent_size : k, the number of dimensions of the code.
    """

    per_dimension = True

    def __init__(self, input_size: int, latent_size: int) -> None:
        super().__init__(input_size, latent_size)
        self._parameters_of = torch.nn.Linear(input_size, 2 * latent_size)

    def forward(self, features: torch.Tensor) -> Code:
        """Return the codes of texts, given their features `(n, input_size)`.

        The sample is reparametrized, so it has a gradient (Kingma & Welling, 2014).
        """
        mean, log_variance = self._parameters_of(features).chunk(2, dim=-1)
        noise = self.noise(mean, *mean.shape)
        return Code(mean + noise * (log_variance / 2).exp(), mean, log_variance)

    def divergence(self, code: Code, features: torch.Tensor) -> Divergence:
        """Return the exact KL term of each text and dimension, `(n, k)`, which is the penalty."""
        kl = kl_to_prior(code.mean, code.log_variance)
        information = None if self.training else mutual_information(code)
        return Divergence(kl, kl, kl.new_zeros(()), information)


def kl_to_prior(mean: torch.Tensor, log_variance: torch.Tensor) -> torch.Tensor:
    """Return KL(q(z|x) || N(0, I)) in nats for each dimension, in the shape of `mean`."""
    return (mean**2 + log_variance.exp() - 1 - log_variance) / 2


def log_densities(
    samples: torch.Tensor, mean: torch.Tensor, log_variance: torch.Tensor
) -> torch.Tensor:
    """Return the log densities of samples under normal distributions with diagonal covariance.

    # Parameters

    samples : `(m, k)`.
    mean, log_variance : of n distributions, `(n, k)`.

    # Returns

    `log q(z_i|x_j)`, `(m, n)`.
    """
    squares = (samples.unsqueeze(1) - mean) ** 2 / log_variance.exp()  # (m, n, k)
    return -(squares + log_variance + math.log(2 * math.pi)).sum(dim=-1) / 2


@torch.no_grad()
def mutual_information(code: Code) -> torch.Tensor:
    """Return an estimate of the mutual information of texts and codes under q, in nats, a scalar.

    It is `I(x, z) = E_x KL(q(z|x) || p(z)) - KL(q(z) || p(z))`, where q(z) is the mean of q(z|x)
    over this batch (Hoffman & Johnson, 2016). Both terms are estimated by the same samples, so p(z)
    cancels. The result is the mean of `log q(z_i|x_i) - log 1/n sum_j q(z_i|x_j)`, which is at most
    log n.
    """
    parts = code.sample.split(_ROWS)
    densities = torch.cat([log_densities(part, code.mean, code.log_variance) for part in parts])
    aggregate = densities.logsumexp(dim=1) - math.log(len(densities))
    return (densities.diagonal() - aggregate).mean()
