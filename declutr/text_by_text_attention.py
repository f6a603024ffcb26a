"""Attention over texts end to end on a CPU: one text after another, as an operator of torch.

torch's CPU kernel for attention has no dropout: with it, torch keeps every probability, mask and
product of all texts, and spends most of its time drawing one number for each. Here scores are
computed twice and never kept, and one 64-bit number decides about four probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from declutr.repeatable_dropout import RepeatableDropout, draw_seed

_TOKENS_AT_ONCE = 1024  # of equally long texts: their scores then stay in the cache of a CPU

_INPUTS = "Tensor query, Tensor key, Tensor value, Tensor cu_seqlens, Tensor? seed"
_NUMBERS = "float dropout_p, float scale"


def attend(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, dropout_p: float, scale: float
) -> Tensor:
    """Attention within each text of a row, `(1, H, T, D)` each, with dropout on the probabilities.

    `cu_seqlens` `(N + 1,)` is where each text begins, and T. The operator behind this is one to
    `torch.compile`, which neither looks into it nor depends on the lengths of texts.
    """
    seed = draw_seed(dropout_p)
    return _attention(query, key, value, cu_seqlens, seed, dropout_p, scale)


@torch.library.custom_op(
    "declutr::attention_text_by_text",
    mutates_args=(),
    device_types="cpu",
    schema=f"({_INPUTS}, {_NUMBERS}) -> Tensor",
)
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    seed: Tensor | None,
    dropout_p: float,
    scale: float,
) -> Tensor:
    output = torch.empty_like(query)
    dropout = RepeatableDropout(dropout_p, seed)
    generator = dropout.generator()
    with torch.autocast("cpu", enabled=False):
        for part in _parts(cu_seqlens):
            q, k, v, o = (_texts(tensor, *part) for tensor in (query, key, value, output))
            kept = dropout.kept(generator, q.shape[:-1] + k.shape[-2:-1])
            o.copy_(dropout(_probabilities(q, k, scale), kept) @ v)
    return output


@torch.library.custom_op(
    "declutr::attention_text_by_text_backward",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor gradient, {_INPUTS}, {_NUMBERS}) -> (Tensor, Tensor, Tensor)",
)
def _gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    seed: Tensor | None,
    dropout_p: float,
    scale: float,
) -> tuple[Tensor, ...]:
    gradients = tuple(torch.empty_like(tensor) for tensor in (query, key, value))
    dropout = RepeatableDropout(dropout_p, seed)
    generator = dropout.generator()
    with torch.autocast("cpu", enabled=False):
        for part in _parts(cu_seqlens):
            q, k, v, g = (_texts(tensor, *part) for tensor in (query, key, value, gradient))
            dq, dk, dv = (_texts(tensor, *part) for tensor in gradients)
            p = _probabilities(q, k, scale)  # (H, texts, n, n)
            kept = dropout.kept(generator, p.shape)
            dv.copy_(dropout(p, kept).transpose(-1, -2) @ g)
            dp = dropout(g @ v.transpose(-1, -2), kept)
            ds = torch._softmax_backward_data(dp, p, -1, p.dtype).mul_(scale)
            dq.copy_(ds @ k)
            dk.copy_(ds.transpose(-1, -2) @ q)
    return gradients


@_attention.register_fake
def _(query: Tensor, *others: Any) -> Tensor:
    return torch.empty_like(query)


@_gradients.register_fake
def _(gradient: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(tensor) for tensor in inputs[:3])


def _remember(ctx: Any, inputs: tuple, output: Tensor) -> None:
    *tensors, ctx.dropout_p, ctx.scale = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _gradients(gradient, *ctx.saved_tensors, ctx.dropout_p, ctx.scale)
    return *gradients, None, None, None, None


_attention.register_autograd(_backward, setup_context=_remember)


def _parts(cu_seqlens: Tensor) -> Iterator[tuple[int, int, int]]:
    """`(start, count, length)` of runs of equally long texts, none much over `_TOKENS_AT_ONCE`
    unless it is a single text."""
    start = 0
    for length, texts in groupby(cu_seqlens.diff().tolist()):
        count = len(list(texts))
        most = max(1, _TOKENS_AT_ONCE // length)
        for first in range(0, count, most):
            some = min(most, count - first)
            yield start, some, length
            start += some * length


def _texts(tensor: Tensor, start: int, count: int, length: int) -> Tensor:
    """`(1, H, T, D)` -> a view `(H, count, length, D)` of some of its texts."""
    return tensor[0, :, start : start + count * length].unflatten(1, (count, length))


def _probabilities(query: Tensor, key: Tensor, scale: float) -> Tensor:
    return ((query * scale) @ key.transpose(-1, -2)).softmax(dim=-1)
