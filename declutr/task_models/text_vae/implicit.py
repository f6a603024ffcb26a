"""The implicit posterior of iVAE, whose divergence from the prior a network estimates.

The paper is "Implicit Deep Latent Variable Models for Text Generation" (Fang et al., EMNLP 2019).
"""

from itertools import pairwise

import torch
from allennlp.common.checks import ConfigurationError
from torch.func import functional_call

from declutr.objectives.numerics import one_of
from declutr.system.distributed import with_value
from declutr.task_models.text_vae.posterior import Code, Divergence, Posterior

PENALTIES = ("posterior", "aggregate")
_LARGEST = 20.0  # above it exp goes on as a straight line, so that no step overflows
_SMALLEST_VARIANCE = 1e-6


class DualNetwork(torch.nn.Module):
    """The network nu of the dual form of a KL divergence: a scalar of each code.

    At its optimum it is the log of the ratio of the density of codes to that of the prior. As in
    the public code of iVAE, it has three hidden layers with a leaky ReLU.

    # Parameters

    input_size : the size of a code, and of the features beside it.
    hidden_size : the size of the hidden layers.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        layers: list[torch.nn.Module] = []
        for width in (input_size, hidden_size, hidden_size):
            layers += [torch.nn.Linear(width, hidden_size), torch.nn.LeakyReLU()]
        self._layers = torch.nn.Sequential(*layers, torch.nn.Linear(hidden_size, 1))

    def forward(self, codes: torch.Tensor, features: torch.Tensor | None = None) -> torch.Tensor:
        """Return nu(x, z), or nu(z) without features, `(n, s)`.

        # Parameters

        codes : s codes of each of n texts, `(n, s, k)`.
        features : of the texts, `(n, d)`.
        """
        if features is not None:
            beside = features.unsqueeze(1).expand(-1, codes.size(1), -1)
            codes = torch.cat([codes, beside], dim=-1)
        return self._layers(codes).squeeze(-1)


def dual_bound(
    network: DualNetwork,
    codes: torch.Tensor,
    of_prior: torch.Tensor,
    features: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the dual form of a KL divergence of each text in nats, `(n,)`.

    It is `E_q[nu] - E_p[exp(nu)] + 1`, at most KL(q || p) for every nu and equal to it for
    `nu = log q / p` (Fenchel's dual of `-log`; Fang et al., 2019, equation 5). The means over
    samples estimate it without bias, so that estimates may be above the divergence, or below 0.

    # Parameters

    network : nu.
    codes, of_prior : samples of q and of the prior, `(n, s, k)`.
    features : of the texts, `(n, d)`, or none for the divergence of the aggregated posterior.
    """
    ratio = network(of_prior, features)
    capped = ratio.clamp_max(_LARGEST)
    exponential = capped.exp() * (1 + ratio - capped)
    return network(codes, features).mean(dim=1) - exponential.mean(dim=1) + 1


@Posterior.register("implicit")
class ImplicitPosterior(Posterior):
    """A layer that makes codes of the features of a text and normal noise, as in iVAE.

    q(z|x) has samples, but no density. Its KL divergence from the prior is estimated in the dual
    form, by a network nu(x, z); another one, nu(z), estimates that of the aggregated posterior.
    Both learn in every step, from the gradient of `Divergence.learning`, which reaches nothing
    else; the encoder learns from `Divergence.penalty` through networks that are held fixed. The
    public code updates the networks five times a step, by an Adam of its own with a learning rate
    of 1e-5; here they are updated once, in one parameter group of the trainer's optimizer (regular
    expression `"_dual"`), with five draws of the prior and five times that rate.

    The mutual information is the difference of the two divergences, as in the public code.

    # Parameters

    input_size, latent_size : as of `Posterior`; the noise has the size of a code.
    layers : the number of hidden layers of the network that makes codes. With 0, as in the public
        code, codes are linear in features and noise, and so normally distributed given the text.
    hidden_size : the size of those layers.
    penalty : what the loss weighs: `"posterior"`, KL(q(z|x) || p(z)), is iVAE; `"aggregate"`,
        KL(q(z) || p(z)), is iVAE-MI, which adds their difference, the mutual information, to the
        objective.
    dual_size : the size of the hidden layers of both networks nu.
    prior_draws : how many codes of the prior a text gets in a step, to train the networks.
    particles : how many codes of each text, and of the prior, there are outside training.

    # Raises

    `ConfigurationError` : a parameter is out of range.
    """

    def __init__(
        self,
        input_size: int,
        latent_size: int,
        layers: int = 0,
        hidden_size: int = 256,
        penalty: str = "posterior",
        dual_size: int = 512,
        prior_draws: int = 5,
        particles: int = 128,
    ) -> None:
        super().__init__(input_size, latent_size)
        self._penalty = one_of("penalty", penalty, PENALTIES)
        if layers < 0 or min(hidden_size, dual_size, prior_draws) < 1:
            raise ConfigurationError(
                "Expected layers of 0 or more, and hidden_size, dual_size and prior_draws of 1 or "
                f"more, got {layers}, {hidden_size}, {dual_size} and {prior_draws}."
            )
        if particles < 2 or particles % 2:
            raise ConfigurationError(
                f"particles are drawn in pairs: expected an even number, got {particles}."
            )
        widths = [input_size + latent_size, *[hidden_size] * layers]
        hidden: list[torch.nn.Module] = []
        for width, following in pairwise(widths):
            hidden += [torch.nn.Linear(width, following), torch.nn.LeakyReLU()]
        self._generator = torch.nn.Sequential(*hidden, torch.nn.Linear(widths[-1], latent_size))
        self._posterior_dual = DualNetwork(latent_size + input_size, dual_size)
        self._aggregate_dual = DualNetwork(latent_size, dual_size)
        self._linear = not layers
        self._prior_draws, self._particles = prior_draws, particles

    def forward(self, features: torch.Tensor) -> Code:
        """Return the codes of texts, given their features `(n, input_size)`.

        Mean and log variance are those of the particles of each text; in training there is one.
        """
        sample = self._codes(features, self.noise(features, len(features), 1, self._latent_size))
        particles = sample if self.training else self._particles_of(features)
        variance = particles.var(dim=1, correction=0).clamp_min(_SMALLEST_VARIANCE)
        return Code(sample.squeeze(1), particles.mean(dim=1), variance.log())

    def _codes(self, features: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return codes `(n, s, k)` of features `(n, d)` and noise `(n, s, k)`."""
        beside = features.unsqueeze(1).expand(-1, noise.size(1), -1)
        return self._generator(torch.cat([beside, noise], dim=-1))

    def _particles_of(self, features: torch.Tensor) -> torch.Tensor:
        """Return codes `(n, particles, k)`.

        Their noise comes in pairs of opposite signs. If codes are linear in the noise, their mean
        is that of the distribution, and units are not counted as active for the noise in means.
        """
        half = self.noise(features, len(features), self._particles // 2, self._latent_size)
        return self._codes(features, torch.cat([half, -half], dim=1))

    def divergence(self, code: Code, features: torch.Tensor) -> Divergence:
        """Return estimates of the divergence of each text, `(n, 1)`, of one particle in training.

        Outside training there are `particles` codes of each text.
        """
        features = features.detach()
        codes = code.sample.unsqueeze(1) if self.training else self._particles_of(features)
        draws = self._prior_draws if self.training else self._particles
        of_prior = self.noise(features, len(features), draws, self._latent_size, stream=1)
        both = [
            self._estimate(self._posterior_dual, codes, of_prior, features),
            self._estimate(self._aggregate_dual, codes, of_prior, None),
        ]
        kl, aggregate = (bound.detach().unsqueeze(1) for bound, _ in both)
        penalty = both[PENALTIES.index(self._penalty)][1].unsqueeze(1)
        learning = -(both[0][0] + both[1][0]).mean()
        information = None if self.training else (kl - aggregate).mean()
        return Divergence(kl, penalty, learning - learning.detach(), information)

    def _estimate(
        self,
        network: DualNetwork,
        codes: torch.Tensor,
        of_prior: torch.Tensor,
        features: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a bound twice, `(n,)`: with a gradient for the network, and one for the codes."""
        bound = dual_bound(network, codes.detach(), of_prior, features)
        if not self.training:
            return bound, bound
        fixed = {name: value.detach() for name, value in network.named_parameters()}
        of_codes = functional_call(network, fixed, (codes, features)).mean(dim=1)
        return bound, with_value(of_codes, bound)

    def scale(self, code: Code) -> torch.Tensor:
        """Return the Cholesky factor of the covariance: exact of linear codes, else of moments."""
        if not self._linear:
            return super().scale(code)
        linear = self._generator[0]
        assert isinstance(linear, torch.nn.Linear)
        of_noise = linear.weight[:, self._input_size :]
        covariance = of_noise @ of_noise.T
        smallest = _SMALLEST_VARIANCE * torch.eye(len(covariance)).to(covariance)
        return torch.linalg.cholesky(covariance + smallest)
