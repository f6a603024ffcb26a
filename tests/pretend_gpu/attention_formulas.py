"""Attention by its formula, with dropout that a seed replays, and what all kernels of it refuse."""

from __future__ import annotations

import torch
from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)
_LARGEST_HEAD = 256  # of flash attention
_SEEDS = 1 << 30


def check_flash(query: Tensor, *others: Tensor) -> None:
    """Refuse what flash attention refuses."""
    if query.dtype not in _HALF or any(t.dtype != query.dtype for t in others):
        found = [str(t.dtype) for t in (query, *others)]
        raise RuntimeError(f"FlashAttention only support fp16 and bf16 data type, got {found}")
    head = query.size(-1)
    if head % 8 or head > _LARGEST_HEAD:
        raise RuntimeError(f"FlashAttention: head size {head} is not a multiple of 8 up to 256")
    if any(t.stride(-1) != 1 for t in (query, *others)):
        raise RuntimeError("FlashAttention: input tensors must have contiguous last dimension")


def check_efficient(query: Tensor, *others: Tensor) -> None:
    """Refuse what memory-efficient attention refuses."""
    if any(t.dtype != query.dtype for t in others):
        found = [str(t.dtype) for t in (query, *others)]
        raise RuntimeError(f"efficient attention: all tensors need one dtype, got {found}")
    if any(t.stride(-1) != 1 for t in (query, *others)):
        raise RuntimeError("efficient attention: the last dimension must be contiguous")


def draw_seed(dropout_p: float) -> int:
    """A seed drawn from torch's generator, which the caller has set to the device's.

    Without dropout nothing is drawn.
    """
    return int(torch.randint(_SEEDS, ())) if dropout_p else 0


def generator_of(seed: int) -> torch.Generator:
    """Of the numbers that decide what is dropped: the same for the same seed."""
    return torch.Generator("cpu").manual_seed(seed)


def _probabilities(
    query: Tensor, key: Tensor, is_causal: bool, scale: float | None, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Of each query over all keys, and the logarithm of the sum by which they are divided."""
    scale = query.size(-1) ** -0.5 if scale is None else scale
    scores = (query * scale) @ key.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias.float()
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores.softmax(dim=-1), scores.logsumexp(dim=-1)


def _kept(probabilities: Tensor, dropout_p: float, generator: torch.Generator) -> Tensor | float:
    """What each probability is multiplied by."""
    if not dropout_p:
        return 1.0
    return (torch.rand(probabilities.shape, generator=generator) >= dropout_p) / (1 - dropout_p)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    generator: torch.Generator,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention `(..., H, n, D)`, and the log-sum-exp of the scores of each query."""
    probabilities, sums = _probabilities(query, key, is_causal, scale, bias)
    return (probabilities * _kept(probabilities, dropout_p, generator)) @ value, sums


def gradients_of(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    generator: torch.Generator,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values and scores."""
    scale = query.size(-1) ** -0.5 if scale is None else scale
    probabilities, _ = _probabilities(query, key, is_causal, scale, bias)
    kept = _kept(probabilities, dropout_p, generator)
    of_values = (probabilities * kept).transpose(-1, -2) @ gradient
    of_probabilities = (gradient @ value.transpose(-1, -2)) * kept
    mean = (of_probabilities * probabilities).sum(dim=-1, keepdim=True)
    of_scores = probabilities * (of_probabilities - mean)
    return (
        of_scores @ key * scale,
        of_scores.transpose(-1, -2) @ query * scale,
        of_values,
        of_scores,
    )
