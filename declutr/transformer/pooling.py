"""Vectors of tokens to the vector of a text."""

from __future__ import annotations

import torch

POOLINGS = ("mean", "cls", "first-last", "max", "mean-sqrt-length", "last", "pooler")
"""`mean` of the last layer over tokens, special ones included; `cls`: its first token;
`first-last`: mean over tokens of the average of what the first and the last layer give (BERT-flow,
arXiv 2011.05864, and SimCSE, arXiv 2104.08821: `hidden_states[1]`, the embeddings being number 0);
`max` over tokens; `mean-sqrt-length`: their sum over the square root of their number
(sentence-transformers); `last` token; `pooler`: what the checkpoint's own head makes of the first
token, as supervised SimCSE was evaluated."""


def pooled(vectors: torch.Tensor, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """The vectors `(n, d)` of n texts, float32.

    # Parameters

    vectors : of tokens, `(n, length, d)`; for `first-last` the average of the two layers.
    mask : `(n, length)`, true for tokens and not for padding, which comes last; no row is all
        padding.
    pooling : one of `POOLINGS`, `pooler` excepted.
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
    # Filled and not multiplied: what stands on padding may be anything.
    total = vectors.masked_fill(padding, 0.0).sum(dim=1)
    divisor = counts.sqrt() if pooling == "mean-sqrt-length" else counts
    return total / divisor.unsqueeze(-1)
