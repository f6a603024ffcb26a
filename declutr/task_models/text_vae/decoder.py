"""The decoder: a recurrent language model that is told a code."""

from __future__ import annotations

import torch
from allennlp.common.checks import ConfigurationError

CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}


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
