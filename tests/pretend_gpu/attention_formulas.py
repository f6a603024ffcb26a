"""Attention by its formula, with dropout that a seed replays, and what all kernels of it refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

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


def draw_seed(dropout_p: float | None) -> int:
    """A seed drawn from torch's generator, which the caller has set to the device's.

    Without dropout nothing is drawn.
    """
    return int(torch.randint(_SEEDS, ())) if dropout_p else 0


def generator_of(seed: int) -> torch.Generator:
    """Of the numbers that decide what is dropped: the same for the same seed."""
    return torch.Generator("cpu").manual_seed(seed)


def _scale(query: Tensor, how: Any) -> float:
    return query.size(-1) ** -0.5 if how.scale is None else how.scale


def _probabilities(
    query: Tensor, key: Tensor, how: Any, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Of each query over all keys, and the logarithm of the sum by which they are divided."""
    scores = (query * _scale(query, how)) @ key.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias.float()
    if how.is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return scores.softmax(dim=-1), scores.logsumexp(dim=-1)


def _kept(
    probabilities: Tensor, dropout_p: float | None, generator: torch.Generator
) -> Tensor | float:
    """What each probability is multiplied by."""
    if not dropout_p:
        return 1.0
    return (torch.rand(probabilities.shape, generator=generator) >= dropout_p) / (1 - dropout_p)


def arguments(names: str) -> Callable[[Callable], Callable]:
    """Give a kernel one object that has the arguments of its operator by these names.

    They are in the order of the operator; what is not given is `None`.
    """

    def named(kernel: Callable) -> Callable:
        def run(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(names.split(), args, strict=False)) | kwargs
            return kernel(SimpleNamespace(**dict.fromkeys(names.split()) | given))

        return run

    return named


def attend(texts: Iterable[Tensor], how: Any, generator: Any) -> tuple[Tensor, Tensor]:
    """Attention `(..., H, n, D)`, and the log-sum-exp of the scores of each query.

    # Parameters

    texts : queries, keys and values, and a bias if there is one.
    how : has the attributes `dropout_p`, `is_causal` and `scale`.
    """
    query, key, value, *bias = texts
    probabilities, sums = _probabilities(query, key, how, *bias)
    return (probabilities * _kept(probabilities, how.dropout_p, generator)) @ value, sums


def gradients_of(texts: Iterable[Tensor], how: Any, generator: Any) -> list[Tensor]:
    """Gradients of queries, keys, values and scores; the first of the texts is the output's."""
    gradient, query, key, value, *bias = texts
    probabilities, _ = _probabilities(query, key, how, *bias)
    kept = _kept(probabilities, how.dropout_p, generator)
    of_values = (probabilities * kept).transpose(-1, -2) @ gradient
    of_probabilities = (gradient @ value.transpose(-1, -2)) * kept
    mean = (of_probabilities * probabilities).sum(dim=-1, keepdim=True)
    of_scores = probabilities * (of_probabilities - mean)
    scale = _scale(query, how)
    of_keys = of_scores.transpose(-1, -2) @ query * scale
    return [of_scores @ key * scale, of_keys, of_values, of_scores]
