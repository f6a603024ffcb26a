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
    attend,
    check_efficient,
    check_flash,
    draw_seed,
    generator_of,
    gradients_of,
)

aten = torch.ops.aten


def _flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    **windows: Any,
) -> tuple[Tensor, ...]:
    """Attention within each text of `(T, H, D)`; only what is packed."""
    if cum_seq_q is None or cum_seq_k is None or any(v is not None for v in windows.values()):
        raise NotImplementedError("The pretend GPU knows flash attention over packed texts alone.")
    assert query.dim() == 3 and query.shape == key.shape == value.shape
    assert not is_causal and not return_debug_mask
    check_flash(query, key, value)
    parts = list(_parts(cum_seq_q, cum_seq_k, max_q, max_k, query, key))
    seed = draw_seed(dropout_p)
    output = torch.empty_like(query)
    sums = query.new_zeros(query.size(1), query.size(0), dtype=torch.float32)
    generator = generator_of(seed)
    for q, k in parts:
        texts = (_heads_first(t[part]) for t, part in ((query, q), (key, k), (value, k)))
        attended, sums[:, q] = attend(*texts, dropout_p, is_causal, scale, generator)
        output[q] = attended.transpose(0, 1).to(output.dtype)
    state = torch.tensor([seed, 0]).view(torch.uint64)
    return output, sums, state, torch.zeros((), dtype=torch.uint64), query.new_empty(0)


def _flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    **windows: Any,
) -> tuple[Tensor, ...]:
    check_flash(query, key, value, grad_out)
    seed = int(rng_state.view(torch.int64)[0])
    parts = _parts(cum_seq_q, cum_seq_k, max_q, max_k, query, key)
    return _packed_gradients(grad_out, query, key, value, parts, dropout_p, is_causal, scale, seed)


def _efficient_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: Tensor | None = None,
    window_size: int | None = None,
) -> tuple[Any, ...]:
    """Attention within each text of `(1, T, H, D)`; only what is packed, without a bias."""
    if cu_seqlens_q is None or cu_seqlens_k is None or bias is not None or custom_mask_type:
        raise NotImplementedError(
            "The pretend GPU knows memory-efficient attention over packed texts alone, unmasked."
        )
    check_efficient(query, key, value)
    _check_packed(query, key, value)
    assert max_seqlen_q is not None and max_seqlen_k is not None
    parts = list(_parts(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, query[0], key[0]))
    seed = draw_seed(dropout_p)
    output = torch.empty_like(query)
    texts, heads = cu_seqlens_q.numel() - 1, query.size(2)
    width = -(-max_seqlen_q // 32) * 32 if compute_log_sumexp else 0
    sums = query.new_zeros(texts, heads, width, dtype=torch.float32)
    generator = generator_of(seed)
    for number, (q, k) in enumerate(parts):
        text = (_heads_first(t[0, part]) for t, part in ((query, q), (key, k), (value, k)))
        attended, sum_ = attend(*text, dropout_p, False, scale, generator)
        output[0, q] = attended.transpose(0, 1).to(output.dtype)
        if compute_log_sumexp:
            sums[number, :, : sum_.size(1)] = sum_
    return output, sums, torch.tensor(seed), torch.tensor(0), max_seqlen_q, max_seqlen_k


def _efficient_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    logsumexp: Tensor,
    dropout_p: float,
    philox_seed: Tensor,
    philox_offset: Tensor,
    custom_mask_type: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    num_splits_key: int | None = None,
    window_size: int | None = None,
    shared_storage_dqdkdv: bool = False,
) -> tuple[Tensor, ...]:
    check_efficient(query, key, value, grad_out)
    _check_packed(query, key, value)
    if not logsumexp.numel():
        raise RuntimeError("The forward pass was told not to keep the log-sum-exp: no backward.")
    parts = _parts(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, query[0], key[0])
    packed = (t[0] for t in (grad_out, query, key, value))
    gradients = _packed_gradients(*packed, parts, dropout_p, False, scale, int(philox_seed))
    return *(gradient[None] for gradient in gradients), query.new_empty(0)


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


def _packed_gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    parts: Any,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    seed: int,
) -> tuple[Tensor, Tensor, Tensor]:
    found = tuple(torch.zeros_like(tensor) for tensor in (query, key, value))
    generator = generator_of(seed)
    for q, k in parts:
        pairs = ((gradient, q), (query, q), (key, k), (value, k))
        texts = (_heads_first(tensor[part]) for tensor, part in pairs)
        gradients = gradients_of(*texts, dropout_p, is_causal, scale, generator)
        for into, part, of_text in zip(found, (q, k, k), gradients, strict=False):
            into[part] = of_text.transpose(0, 1).to(into.dtype)
    return found


PACKED_ATTENTION: dict[Any, Callable] = {
    aten._flash_attention_forward.default: _flash_forward,
    aten._flash_attention_backward.default: _flash_backward,
    aten._efficient_attention_forward.default: _efficient_forward,
    aten._efficient_attention_backward.default: _efficient_backward,
}
