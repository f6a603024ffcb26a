"""Layers of a text VAE: the latent code of a text, its decoder, and the weight of the KL term."""

import math
from typing import NamedTuple

import torch
from allennlp.common.checks import ConfigurationError

CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
_VALIDATION_NOISE = 13370  # a fixed seed outside training, so that epochs can be compared


class Code(NamedTuple):
    """A sample of q(z|x) with the mean and log variance of the distribution, each `(n, k)`."""

    sample: torch.Tensor
    mean: torch.Tensor
    log_variance: torch.Tensor


class LatentCode(torch.nn.Module):
    """A layer that computes q(z|x), a normal distribution with diagonal covariance, and samples it.

    Outside training the noise is the same in every batch.

    # Parameters

    input_size : the number of features of a text.
    latent_size : k, the number of dimensions of the code.
    """

    def __init__(self, input_size: int, latent_size: int) -> None:
        super().__init__()
        self._parameters_of = torch.nn.Linear(input_size, 2 * latent_size)

    def get_input_dim(self) -> int:
        """Return the number of features of a text."""
        return self._parameters_of.in_features

    def get_output_dim(self) -> int:
        """Return k, the number of dimensions of the code."""
        return self._parameters_of.out_features // 2

    def forward(self, features: torch.Tensor) -> Code:
        """Return the codes of texts, given their features `(n, input_size)`.

        The sample is reparametrized, so it has a gradient (Kingma & Welling, 2014).
        """
        mean, log_variance = self._parameters_of(features).chunk(2, dim=-1)
        generator = None
        if not self.training:
            generator = torch.Generator(mean.device).manual_seed(_VALIDATION_NOISE)
        noise = torch.randn(mean.shape, generator=generator, device=mean.device, dtype=mean.dtype)
        return Code(mean + noise * (log_variance / 2).exp(), mean, log_variance)


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


class CodeDecoder(torch.nn.Module):
    """A recurrent decoder that predicts each token from the tokens before it and a latent code.

    The code is part of every input and determines the first state, as in He et al. (2019).

    # Parameters

    cell : `"lstm"` or `"gru"`.
    input_size, latent_size, hidden_size : sizes of token embeddings, codes and states.
    tokens : the size of the vocabulary.
    dropout : the rate of dropout on inputs and states.

    # Raises

    `ConfigurationError` : an unknown cell.
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        latent_size: int,
        hidden_size: int,
        tokens: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ConfigurationError(f"Unknown cell '{cell}': expected one of {', '.join(CELLS)}.")
        self._first = torch.nn.Linear(latent_size, hidden_size)
        self._recurrent = CELLS[cell](input_size + latent_size, hidden_size, batch_first=True)
        self._dropout = torch.nn.Dropout(dropout)
        self._output = torch.nn.Linear(hidden_size, tokens)

    def forward(self, inputs: torch.Tensor, code: torch.Tensor) -> torch.Tensor:
        """Return the logits of the token after each input.

        # Parameters

        inputs : token embeddings, `(n, T, input_size)`.
        code : `(n, latent_size)`.

        # Returns

        `(n, T, tokens)`.
        """
        first = self._first(code).unsqueeze(0)  # (1, n, hidden_size)
        state = torch.tanh(first)
        beside = code.unsqueeze(1).expand(-1, inputs.size(1), -1)
        told = torch.cat([self._dropout(inputs), beside], dim=-1)
        is_lstm = isinstance(self._recurrent, torch.nn.LSTM)
        states, _ = self._recurrent(told, (state, first) if is_lstm else state)
        return self._output(self._dropout(states))


class KlWeight(torch.nn.Module):
    """A weight of the KL term that rises linearly to 1 in training (Bowman et al., 2016).

    It is `initial` in the first step, and 1 from step `steps` on. The number of steps is saved in
    checkpoints.

    # Parameters

    steps : the number of batches until the weight is 1; with 0 it is always 1.
    initial : the first weight.

    # Raises

    `ConfigurationError` : a negative number of steps, or an `initial` outside [0, 1].
    """

    done: torch.Tensor

    def __init__(self, steps: int, initial: float = 0.0) -> None:
        super().__init__()
        if steps < 0 or not 0 <= initial <= 1:
            raise ConfigurationError(
                "Expected annealing_steps of 0 or more and initial_kl_weight in [0, 1], got "
                f"{steps} and {initial}."
            )
        self._steps, self._initial = steps, initial
        self.register_buffer("done", torch.zeros((), dtype=torch.long))

    def forward(self) -> torch.Tensor:
        """Return the weight of this step, a scalar; in training, count the step as done."""
        weight = torch.ones((), device=self.done.device)
        if self._steps:
            share = (self.done / self._steps).clamp_max(1)
            weight = self._initial + (1 - self._initial) * share
        if self.training:
            self.done += 1
        return weight
