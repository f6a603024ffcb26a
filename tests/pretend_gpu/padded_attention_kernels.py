"""Plain reference kernels of attention over padded texts, for what a build for CPUs lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .attention_formulas import (
    attend,
    check_efficient,
    check_flash,
    draw_seed,
    generator_of,
    gradients_of,
)

aten = torch.ops.aten


def _efficient_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """Memory-efficient attention of padded `(N, H, L, D)`, with a bias `(N, H, L, L)`."""
    check_efficient(query, key, value)
    seed = draw_seed(dropout_p)
    texts = (t.float() for t in (query, key, value))
    output, sums = attend(*texts, dropout_p, is_causal, scale, generator_of(seed), bias)
    return _tokens_first(output, query), sums, torch.tensor(seed), torch.tensor(0)


def _efficient_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    check_efficient(query, key, value, grad_out)
    tensors = (t.float() for t in (grad_out, query, key, value))
    generator = generator_of(int(philox_seed))
    gradients = gradients_of(*tensors, dropout_p, is_causal, scale, generator, bias)
    found = [_tokens_first(g, query) for g in gradients[:3]]
    return *found, gradients[3].to(query.dtype) if grad_input_mask[3] else None


def _flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """Flash attention of padded `(N, H, L, D)`, without a mask."""
    check_flash(query, key, value)
    texts = query, key, value, None, True
    output, sums, seed, _ = _efficient_forward(*texts, dropout_p, is_causal, scale=scale)
    state = torch.stack([seed, seed.new_zeros(())]).view(torch.uint64)
    unused = torch.zeros((), dtype=torch.uint64)
    return output, sums, None, None, query.size(2), key.size(2), state, unused, query.new_empty(0)


def _flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    philox_offset: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    seed = philox_seed.view(torch.int64)[0]
    return _efficient_backward(
        *(grad_out, query, key, value, None, out, logsumexp, seed, philox_offset),
        *(dropout_p, [True, True, True, False], is_causal),
        scale=scale,
    )[:3]


def _tokens_first(tensor: Tensor, like: Tensor) -> Tensor:
    """The same `(N, H, L, D)`, laid out as `(N, L, H, D)`, as the kernels return it."""
    return tensor.to(like.dtype).transpose(1, 2).contiguous().transpose(1, 2)


PADDED_ATTENTION: dict[Any, Callable] = {
    aten._scaled_dot_product_efficient_attention.default: _efficient_forward,
    aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    aten._scaled_dot_product_flash_attention.default: _flash_forward,
    aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
}
