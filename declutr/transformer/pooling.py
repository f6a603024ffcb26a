"""Pooling of token embeddings to the embedding of a text."""

import torch

POOLINGS = ("mean", "cls", "first-last", "max", "mean-sqrt-length", "last", "pooler")
"""The names of the poolings. All but two pool the token embeddings of the last layer.

- `mean` : the mean over tokens, including special tokens.
- `cls` : the first token.
- `first-last` : the mean over tokens of the average of the first and the last layer's outputs
  (BERT-flow, arXiv 2011.05864, and SimCSE, arXiv 2104.08821). The first layer's output is
  `hidden_states[1]`; number 0 is the output of the embedding layer.
- `max` : the maximum over tokens.
- `mean-sqrt-length` : the sum divided by the square root of the number of tokens
  (sentence-transformers).
- `last` : the last token.
- `pooler` : the output of the pretrained transformer's own head for the first token, with which
  supervised SimCSE was evaluated.
"""


def pooled(vectors: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """Return the embeddings of n texts, `(n, d)`, float32.

    # Parameters

    vectors : token embeddings, `(n, length, d)`; for `first-last` the average of the two layers.
    mask : `(n, length)`, true for tokens and false for padding, which must come last. Each row must
        have at least one token.
    pooling : one of `POOLINGS` except `pooler`.
    """
    vectors = vectors.float()
    if pooling == "cls":
        return vectors[:, 0]
    counts = mask.sum(dim=1)
    if pooling == "last":
        return vectors[torch.arange(len(vectors), device=vectors.device), counts - 1]
    padding = ~mask.bool().unsqueeze(-1)  # (n, length, 1)
    if pooling == "max":
        return vectors.masked_fill(padding, float("-inf")).amax(dim=1)
    # Filled instead of multiplied by 0, because vectors at padding may be infinite or NaN.
    total = vectors.masked_fill(padding, 0.0).sum(dim=1)
    divisors = {"mean": counts, "first-last": counts, "mean-sqrt-length": counts.sqrt()}
    if pooling not in divisors:
        raise ValueError(f"No pooling of tokens is called {pooling!r}: expected one of {POOLINGS}.")
    return total / divisors[pooling].unsqueeze(-1)
