"""Vectors of tokens to the vector of a text."""

from __future__ import annotations

from typing import Any

import torch

POOLINGS = ("mean", "cls", "first-last", "max", "pooler")
"""`mean` of the last layer over tokens, special ones included; `cls`: its first token;
`first-last`: mean over tokens of the average of what the first and the last layer give (BERT-flow,
arXiv 2011.05864, and SimCSE, arXiv 2104.08821: `hidden_states[1]`, the embeddings being number 0);
`max` over tokens; `pooler`: what the checkpoint's own head makes of the first token, as supervised
SimCSE was evaluated."""


def pooled(output: Any, mask: torch.Tensor, pooling: str) -> torch.Tensor:
    """The vectors `(n, d)` of n texts, float32.

    # Parameters

    output : of a transformer; with `hidden_states` for `first-last`.
    mask : `(n, length)`, 1 for tokens and 0 for padding; no row is all padding.
    pooling : one of `POOLINGS`.
    """
    if pooling == "pooler":
        return output.pooler_output.float()
    last = output.last_hidden_state.float()  # (n, length, d)
    if pooling == "cls":
        return last[:, 0]
    kept = mask.unsqueeze(-1)  # (n, length, 1)
    if pooling == "max":
        return last.masked_fill(kept == 0, float("-inf")).amax(dim=1)
    if pooling == "first-last":
        last = (output.hidden_states[1].float() + output.hidden_states[-1].float()) / 2
    # Filled and not multiplied: what stands on padding may be anything.
    return last.masked_fill(kept == 0, 0.0).sum(dim=1) / kept.sum(dim=1)
