"""Layers of a text VAE: the decoder of a latent code, and the weight of the KL term."""

import torch
from allennlp.common.checks import ConfigurationError

from declutr.objectives.numerics import one_of
from declutr.task_models.text_vae.posterior import (  # noqa: F401 - re-exported
    Code,
    LatentCode,
    kl_to_prior,
    log_densities,
)

CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}

State = tuple[torch.Tensor, torch.Tensor] | torch.Tensor
"""The state of an LSTM, or of a GRU: tensors `(1, n, hidden_size)`."""


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
        kind = CELLS[one_of("cell", cell, CELLS)]
        self._first = torch.nn.Linear(latent_size, hidden_size)
        self._recurrent = kind(input_size + latent_size, hidden_size, batch_first=True)
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
        return self.step(inputs, code, self.first_state(code))[0]

    def first_state(self, code: torch.Tensor) -> State:
        """Return the state before the first token, given codes `(n, latent_size)`."""
        first = self._first(code).unsqueeze(0)  # (1, n, hidden_size)
        state = torch.tanh(first)
        return (state, first) if isinstance(self._recurrent, torch.nn.LSTM) else state

    def step(
        self, inputs: torch.Tensor, code: torch.Tensor, state: State
    ) -> tuple[torch.Tensor, State]:
        """Return the logits after each of some more inputs, as `forward`, and the state then."""
        beside = code.unsqueeze(1).expand(-1, inputs.size(1), -1)
        given = torch.cat([self._dropout(inputs), beside], dim=-1)
        states, state = self._recurrent(given, state)
        return self._output(self._dropout(states)), state


class KlWeight(torch.nn.Module):
    """A weight of the KL term that rises linearly in training, once or in cycles.

    It is `initial` in the first step, and `final` from step `steps` on (Bowman et al., 2016). With
    a `cycle` it starts again from `initial` after every `cycle` batches (Fu et al., 2019, whose R
    is `steps / cycle`). The number of steps is saved in checkpoints.

    # Parameters

    steps : the number of batches until the weight is final; with 0 it always is.
    initial : the first weight.
    final : the last weight, the beta of a beta-VAE (Higgins et al., 2017).
    cycle : the number of batches of a cycle; by default there are none.

    # Raises

    `ConfigurationError` : a negative number of steps, an `initial` outside [0, 1], a negative
        `final`, or a cycle that is shorter than `steps`.
    """

    done: torch.Tensor

    def __init__(
        self, steps: int, initial: float = 0.0, final: float = 1.0, cycle: int | None = None
    ) -> None:
        super().__init__()
        if steps < 0 or not 0 <= initial <= 1:
            raise ConfigurationError(
                "Expected annealing_steps of 0 or more and initial_kl_weight in [0, 1], got "
                f"{steps} and {initial}."
            )
        if final < 0:
            raise ConfigurationError(f"Expected a kl_weight of 0 or more, got {final}.")
        if cycle is not None and cycle < max(1, steps):
            raise ConfigurationError(
                f"In a cycle_steps of {cycle} batches the weight would not rise to its last one: "
                f"expected annealing_steps, {steps}, or more."
            )
        self._steps, self._initial, self._final, self._cycle = steps, initial, final, cycle
        self.register_buffer("done", torch.zeros((), dtype=torch.long))

    def forward(self) -> torch.Tensor:
        """Return the weight of this step, a scalar; in training, count the step as done."""
        weight = torch.full((), self._final, device=self.done.device)
        if self._steps:
            place = self.done if self._cycle is None else self.done % self._cycle
            share = (place / self._steps).clamp_max(1)
            weight = self._initial + (self._final - self._initial) * share
        if self.training:
            self.done += 1
        return weight
