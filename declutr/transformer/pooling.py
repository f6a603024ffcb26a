"""Pooling of token embeddings to the embedding of a text."""

from collections.abc import Sequence
from typing import Any

import torch

TOKEN_POOLINGS = ("mean", "cls", "max", "mean-sqrt-length", "last")
"""The poolings of any token embeddings.

- `mean` : the mean over tokens, including special tokens.
- `cls` : the first token.
- `max` : the maximum over tokens.
- `mean-sqrt-length` : the sum divided by the square root of the number of tokens
  (sentence-transformers).
- `last` : the last token.
"""

LAYERS = {"first-last": (1, -1), "embedding-last": (0, -1), "last-two": (-2, -1)}
"""The poolings of two layers of a transformer: the mean over tokens of the mean of both.

Layers are numbers of transformers' `hidden_states`, of which 0 is the output of the embedding
layer, and 1 that of the first layer above it.

- `first-last` : as in the public codes of BERT-flow (arXiv 2011.05864; its `avg-last-2` is this
  one, as it counts from `[-0]`) and of SimCSE (arXiv 2104.08821, `avg_first_last`).
- `embedding-last` : what the public code of SimCSE computed by that name until January 2022.
- `last-two` : as in BERT-flow's paper, and in SimCSE's public code (`avg_top2`).
"""

POOLINGS = (*TOKEN_POOLINGS, *LAYERS, "pooler")
"""The names of all poolings.

The `pooler` is the output of the pretrained transformer's own head for the first token, with which
supervised SimCSE was evaluated. `TOKEN_POOLINGS` and `LAYERS` describe the others.
"""


def layers_of(output: Any) -> Sequence[torch.Tensor]:
    """Return the outputs of all layers of a transformer, `(n, length, d)`.

    The embedding layer is the first. Of an encoder and a decoder, as in BART, they are those of the
    decoder, whose last layer is the output of the whole.

    # Parameters

    output : what a transformer of Hugging Face returns if it is asked for hidden states.

    # Raises

    `ValueError` : it gives none, or some that are not like its last one.
    """
    layers: Sequence[torch.Tensor] = (
        output.decoder_hidden_states if "decoder_hidden_states" in output else output.hidden_states
    )
    shape = output.last_hidden_state.shape
    if len(layers) < 2 or any(layer.shape != shape for layer in layers):
        shapes = sorted({tuple(layer.shape) for layer in layers})
        raise ValueError(
            f"The transformer gives layers of shapes {shapes or 'none'}, and its output has the "
            f"shape {tuple(shape)}. Expected layers like the output: use a pooling of the last one."
        )
    return layers


def mean_of_layers(hidden_states: Sequence[torch.Tensor], layers: str) -> torch.Tensor:
    """Return the mean of two layers of a transformer, `(n, length, d)`, float32.

    # Parameters

    hidden_states : the outputs of all layers, the embedding layer first.
    layers : a key of `LAYERS`.
    """
    first, last = (hidden_states[number].float() for number in LAYERS[layers])
    return (first + last) / 2


def pooled(vectors: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return the embeddings of n texts, `(n, d)`, float32.

    # Parameters

    vectors : token embeddings, `(n, length, d)`; for poolings of two layers their mean.
    mask : `(n, length)`, true for tokens and false for padding. A row should have a token.
    pooling : one of `POOLINGS` except `pooler`.
    """
    vectors = vectors.float()
    if pooling == "cls":
        return vectors[:, 0]
    if pooling == "last":
        places = torch.arange(mask.size(1), device=vectors.device) * mask
        return vectors[torch.arange(len(vectors), device=vectors.device), places.amax(dim=1)]
    padding = ~mask.bool().unsqueeze(-1)  # (n, length, 1)
    if pooling == "max":
        return vectors.masked_fill(padding, float("-inf")).amax(dim=1)
    if pooling not in POOLINGS or pooling == "pooler":
        raise ValueError(f"No pooling of tokens is called {pooling!r}: expected one of {POOLINGS}.")
    # Filled instead of multiplied by 0, because vectors at padding may be infinite or NaN.
    total = vectors.masked_fill(padding, 0.0).sum(dim=1)
    counts = mask.sum(dim=1, keepdim=True).clamp_min(1).float()
    return total / (counts.sqrt() if pooling == "mean-sqrt-length" else counts)
