"""Plain reference kernels of attention over padded texts, for what a build for CPUs lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .attention_formulas import (
    arguments,
    attend,
    check_efficient,
    check_flash,
    draw_seed,
    generator_of,
    gradients_of,
)

aten = torch.ops.aten


@arguments("query key value bias compute_log_sumexp dropout_p is_causal scale")
def _efficient_forward(a: Any) -> tuple[Tensor, ...]:
    """Memory-efficient attention of padded `(N, H, L, D)`, with a bias `(N, H, L, L)`."""
    check_efficient(a.query, a.key, a.value)
    seed = draw_seed(a.dropout_p)
    texts = (*(t.float() for t in (a.query, a.key, a.value)), a.bias)
    output, sums = attend(texts, a, generator_of(seed))
    return _tokens_first(output, a.query), sums, torch.tensor(seed), torch.tensor(0)


@arguments(
    "grad_out query key value bias out logsumexp philox_seed philox_offset dropout_p "
    "grad_input_mask is_causal scale"
)
def _efficient_backward(a: Any) -> tuple[Tensor | None, ...]:
    check_efficient(a.query, a.key, a.value, a.grad_out)
    texts = (*(t.float() for t in (a.grad_out, a.query, a.key, a.value)), a.bias)
    gradients = gradients_of(texts, a, generator_of(int(a.philox_seed)))
    found = [_tokens_first(g, a.query) for g in gradients[:3]]
    return *found, gradients[3].to(a.query.dtype) if a.grad_input_mask[3] else None


@arguments("query key value dropout_p is_causal return_debug_mask scale")
def _flash_forward(a: Any) -> tuple[Any, ...]:
    """Flash attention of padded `(N, H, L, D)`, without a mask."""
    check_flash(a.query, a.key, a.value)
    texts = a.query, a.key, a.value, None, True
    output, sums, seed, _ = _efficient_forward(*texts, a.dropout_p, a.is_causal, scale=a.scale)
    state = torch.stack([seed, seed.new_zeros(())]).view(torch.uint64)
    unused = torch.zeros((), dtype=torch.uint64)
    longest = a.query.size(2), a.key.size(2)
    return output, sums, None, None, *longest, state, unused, a.query.new_empty(0)


@arguments(
    "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal "
    "philox_seed philox_offset scale"
)
def _flash_backward(a: Any) -> tuple[Tensor | None, ...]:
    seed = a.philox_seed.view(torch.int64)[0]
    return _efficient_backward(
        *(a.grad_out, a.query, a.key, a.value, None, a.out, a.logsumexp, seed, a.philox_offset),
        *(a.dropout_p, [True, True, True, False], a.is_causal),
        scale=a.scale,
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
