"""The parts of a text VAE: the code of a text, its decoder, and the weight of the KL term."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from allennlp.common.checks import ConfigurationError

CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
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


class CodeDecoder(torch.nn.Module):
    """Predicts each token from those before it and a code, which is part of every input and makes
    the first state (as in He et al., 2019).

    # Parameters

    cell : `"lstm"` or `"gru"`.
    input_size, latent_size, hidden_size : widths of token vectors, codes and states.
    tokens : how many there are to predict.
    dropout : of inputs and states.

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
        """Logits `(n, T, tokens)` of what follows each of the inputs `(n, T, input_size)`, given
        codes `(n, latent_size)`."""
        first = self._first(code).unsqueeze(0)  # (1, n, hidden_size)
        state = torch.tanh(first)
        beside = code.unsqueeze(1).expand(-1, inputs.size(1), -1)
        told = torch.cat([self._dropout(inputs), beside], dim=-1)
        is_lstm = isinstance(self._recurrent, torch.nn.LSTM)
        states, _ = self._recurrent(told, (state, first) if is_lstm else state)
        return self._output(self._dropout(states))


class KlWeight(torch.nn.Module):
    """Linear annealing (Bowman et al., 2016): `initial` in the first step of training, 1 from step
    `steps` on. Steps done are in checkpoints.

    # Parameters

    steps : batches until it is 1; 0 for 1 from the first.
    initial : what it begins with.

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
        """The weight of this step, a scalar; in training, the step then counts as done."""
        weight = torch.ones((), device=self.done.device)
        if self._steps:
            share = (self.done / self._steps).clamp_max(1)
            weight = self._initial + (1 - self._initial) * share
        if self.training:
            self.done += 1
        return weight
