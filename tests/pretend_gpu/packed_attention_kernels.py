"""Plain reference kernels of attention over packed texts.

They check what the CUDA kernels take for granted (dtypes, offsets, the longest text). Dropout draws
from the seed that the forward kernel returns, so the backward one drops the same probabilities.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
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


_FLASH = (
    "query key value cum_seq_q cum_seq_k max_q max_k dropout_p is_causal return_debug_mask scale"
)


@arguments(_FLASH)
def _flash_forward(a: Any) -> tuple[Tensor, ...]:
    """Attention within each text of `(T, H, D)`; only what is packed."""
    others = [value for name, value in vars(a).items() if name not in _FLASH.split()]
    if a.cum_seq_q is None or a.cum_seq_k is None or any(value is not None for value in others):
        raise NotImplementedError("The pretend GPU knows flash attention over packed texts alone.")
    assert a.query.dim() == 3 and a.query.shape == a.key.shape == a.value.shape
    assert not a.is_causal and not a.return_debug_mask
    check_flash(a.query, a.key, a.value)
    parts = list(_parts(a.cum_seq_q, a.cum_seq_k, a.max_q, a.max_k, a.query, a.key))
    seed = draw_seed(a.dropout_p)
    output = torch.empty_like(a.query)
    sums = a.query.new_zeros(a.query.size(1), a.query.size(0), dtype=torch.float32)
    generator = generator_of(seed)
    for q, k in parts:
        texts = (_heads_first(t[part]) for t, part in ((a.query, q), (a.key, k), (a.value, k)))
        attended, sums[:, q] = attend(texts, a, generator)
        output[q] = attended.transpose(0, 1).to(output.dtype)
    state = torch.tensor([seed, 0]).view(torch.uint64)
    return output, sums, state, torch.zeros((), dtype=torch.uint64), a.query.new_empty(0)


@arguments(
    "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal "
    "rng_state unused scale"
)
def _flash_backward(a: Any) -> tuple[Tensor, ...]:
    check_flash(a.query, a.key, a.value, a.grad_out)
    seed = int(a.rng_state.view(torch.int64)[0])
    parts = _parts(a.cum_seq_q, a.cum_seq_k, a.max_q, a.max_k, a.query, a.key)
    return _packed_gradients((a.grad_out, a.query, a.key, a.value), parts, a, seed)


@arguments(
    "query key value bias cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k dropout_p "
    "custom_mask_type compute_log_sumexp scale is_causal"
)
def _efficient_forward(a: Any) -> tuple[Any, ...]:
    """Attention within each text of `(1, T, H, D)`; only what is packed, without a bias."""
    offsets, longest = (a.cu_seqlens_q, a.cu_seqlens_k), (a.max_seqlen_q, a.max_seqlen_k)
    if any(o is None for o in offsets) or a.bias is not None or a.custom_mask_type:
        raise NotImplementedError(
            "The pretend GPU knows memory-efficient attention over packed texts alone, unmasked."
        )
    check_efficient(a.query, a.key, a.value)
    _check_packed(a.query, a.key, a.value)
    assert None not in longest
    parts = list(_parts(*offsets, *longest, a.query[0], a.key[0]))
    seed = draw_seed(a.dropout_p)
    output = torch.empty_like(a.query)
    texts, heads = offsets[0].numel() - 1, a.query.size(2)
    width = -(-a.max_seqlen_q // 32) * 32 if a.compute_log_sumexp else 0
    sums = a.query.new_zeros(texts, heads, width, dtype=torch.float32)
    generator = generator_of(seed)
    for number, (q, k) in enumerate(parts):
        pairs = ((a.query, q), (a.key, k), (a.value, k))
        attended, sum_ = attend((_heads_first(t[0, part]) for t, part in pairs), a, generator)
        output[0, q] = attended.transpose(0, 1).to(output.dtype)
        if a.compute_log_sumexp:
            sums[number, :, : sum_.size(1)] = sum_
    return output, sums, torch.tensor(seed), torch.tensor(0), *longest


@arguments(
    "grad_out query key value bias out cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k "
    "logsumexp dropout_p philox_seed philox_offset custom_mask_type bias_requires_grad scale "
    "is_causal"
)
def _efficient_backward(a: Any) -> tuple[Tensor, ...]:
    check_efficient(a.query, a.key, a.value, a.grad_out)
    _check_packed(a.query, a.key, a.value)
    if not a.logsumexp.numel():
        raise RuntimeError("The forward pass was told not to keep the log-sum-exp: no backward.")
    offsets, longest = (a.cu_seqlens_q, a.cu_seqlens_k), (a.max_seqlen_q, a.max_seqlen_k)
    parts = _parts(*offsets, *longest, a.query[0], a.key[0])
    packed = tuple(t[0] for t in (a.grad_out, a.query, a.key, a.value))
    gradients = _packed_gradients(packed, parts, a, int(a.philox_seed))
    return *(gradient[None] for gradient in gradients), a.query.new_empty(0)


def _check_packed(*tensors: Tensor) -> None:
    """`(1, T, H, D)` in a dtype and with features that memory-efficient attention takes."""
    for tensor in tensors:
        if tensor.dim() != 4 or tensor.size(0) != 1 or tensor.shape != tensors[0].shape:
            raise RuntimeError(f"packed texts must be (1, T, H, D), got {tuple(tensor.shape)}")
        if tensor.size(-1) % 8 or tensor.dtype == torch.float64:
            raise RuntimeError(f"no kernel for heads of {tensor.size(-1)} {tensor.dtype}")


def _parts(
    offsets_q: Tensor, offsets_k: Tensor, longest_q: int, longest_k: int, query: Tensor, key: Tensor
) -> Iterator[tuple[slice, slice]]:
    """Where each text lies among the queries, and among the keys."""
    found = []
    both = (offsets_q, longest_q, query), (offsets_k, longest_k, key)
    for offsets, longest, packed in both:
        if offsets.dtype != torch.int32 or not offsets.is_contiguous():
            raise RuntimeError(f"cu_seqlens must be contiguous int32, got {offsets.dtype}")
        ends = offsets.tolist()
        lengths = [end - begin for begin, end in itertools.pairwise(ends)]
        if ends[0] != 0 or ends[-1] != packed.size(0) or min(lengths, default=0) < 0:
            raise RuntimeError(f"cu_seqlens {ends} do not divide {packed.size(0)} tokens")
        if max(lengths, default=0) != longest:
            raise RuntimeError(f"a text has {max(lengths)} tokens, the longest is said: {longest}")
        found.append([slice(begin, end) for begin, end in itertools.pairwise(ends)])
    return zip(*found, strict=True)


def _heads_first(text: Tensor) -> Tensor:
    """`(n, H, D)` -> `(H, n, D)` in float32."""
    return text.float().transpose(0, 1)


def _packed_gradients(packed: tuple, parts: Any, how: Any, seed: int) -> tuple[Tensor, ...]:
    found = tuple(torch.zeros_like(tensor) for tensor in packed[1:])
    generator = generator_of(seed)
    for q, k in parts:
        texts = (_heads_first(t[part]) for t, part in zip(packed, (q, q, k, k), strict=True))
        gradients = gradients_of(texts, how, generator)
        for into, part, of_text in zip(found, (q, k, k), gradients, strict=False):
            into[part] = of_text.transpose(0, 1).to(into.dtype)
    return found


PACKED_ATTENTION: dict[Any, Callable] = {
    aten._flash_attention_forward.default: _flash_forward,
    aten._flash_attention_backward.default: _flash_backward,
    aten._efficient_attention_forward.default: _efficient_forward,
    aten._efficient_attention_backward.default: _efficient_backward,
}
