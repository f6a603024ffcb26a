"""Plain reference kernels of attention, for what a build of torch for CPUs lacks.

They check what the CUDA kernels take for granted (dtypes, offsets, the longest text) and what those
refuse. Dropout draws from the seed that the forward kernel returns, so the backward one drops the
same probabilities.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

_HALF = (torch.float16, torch.bfloat16)
_LARGEST_HEAD = 256  # of flash attention
_SEEDS = 1 << 30


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
    _check_flash(query, key, value)
    parts = list(_parts(cum_seq_q, cum_seq_k, max_q, max_k, query, key))
    seed = _draw_seed()
    output = torch.empty_like(query)
    sums = query.new_zeros(query.size(1), query.size(0), dtype=torch.float32)
    generator = _generator(seed)
    for q, k in parts:
        texts = (_heads_first(t[part]) for t, part in ((query, q), (key, k), (value, k)))
        attended, sums[:, q] = _attend(*texts, dropout_p, is_causal, scale, generator)
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
    _check_flash(query, key, value, grad_out)
    seed = int(rng_state.view(torch.int64)[0])
    parts = _parts(cum_seq_q, cum_seq_k, max_q, max_k, query, key)
    return _packed_gradients(
        grad_out, query, key, value, parts, dropout_p, is_causal, scale, seed
    )


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
    _check_efficient(query, key, value)
    assert max_seqlen_q is not None and max_seqlen_k is not None
    parts = list(
        _parts(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, query[0], key[0])
    )
    seed = _draw_seed()
    output = torch.empty_like(query)
    texts, heads = cu_seqlens_q.numel() - 1, query.size(2)
    width = -(-max_seqlen_q // 32) * 32 if compute_log_sumexp else 0
    sums = query.new_zeros(texts, heads, width, dtype=torch.float32)
    generator = _generator(seed)
    for number, (q, k) in enumerate(parts):
        text = (_heads_first(t[0, part]) for t, part in ((query, q), (key, k), (value, k)))
        attended, sum_ = _attend(*text, dropout_p, False, scale, generator)
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
    _check_efficient(query, key, value, grad_out)
    if not logsumexp.numel():
        raise RuntimeError("The forward pass was told not to keep the log-sum-exp: no backward.")
    parts = _parts(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, query[0], key[0])
    packed = (t[0] for t in (grad_out, query, key, value))
    gradients = _packed_gradients(*packed, parts, dropout_p, False, scale, int(philox_seed))
    return *(gradient[None] for gradient in gradients), query.new_empty(0)


def _dense_forward(
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
    _check_efficient(query, key, value)
    seed = _draw_seed()
    output, sums = _attend(
        query.float(), key.float(), value.float(), dropout_p, is_causal, scale, _generator(seed), bias
    )
    return _tokens_first(output, query), sums, torch.tensor(seed), torch.tensor(0)


def _dense_backward(
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
    _check_efficient(query, key, value, grad_out)
    tensors = (t.float() for t in (grad_out, query, key, value))
    generator = _generator(int(philox_seed))
    gradients = _gradients(*tensors, dropout_p, is_causal, scale, generator, bias)
    found = [_tokens_first(g, query) for g in gradients[:3]]
    return *found, gradients[3].to(query.dtype) if grad_input_mask[3] else None


def _dense_flash_forward(
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
    _check_flash(query, key, value)
    output, sums, seed, _ = _dense_forward(
        query, key, value, None, True, dropout_p, is_causal, scale=scale
    )
    state = torch.stack([seed, seed.new_zeros(())]).view(torch.uint64)
    unused = torch.zeros((), dtype=torch.uint64)
    return output, sums, None, None, query.size(2), key.size(2), state, unused, query.new_empty(0)


def _dense_flash_backward(
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
    return _dense_backward(
        *(grad_out, query, key, value, None, out, logsumexp, seed, philox_offset),
        *(dropout_p, [True, True, True, False], is_causal),
        scale=scale,
    )[:3]


ATTENTION: dict[Any, Callable] = {
    aten._flash_attention_forward.default: _flash_forward,
    aten._flash_attention_backward.default: _flash_backward,
    aten._efficient_attention_forward.default: _efficient_forward,
    aten._efficient_attention_backward.default: _efficient_backward,
    aten._scaled_dot_product_efficient_attention.default: _dense_forward,
    aten._scaled_dot_product_efficient_attention_backward.default: _dense_backward,
    aten._scaled_dot_product_flash_attention.default: _dense_flash_forward,
    aten._scaled_dot_product_flash_attention_backward.default: _dense_flash_backward,
}


def _check_flash(query: Tensor, *others: Tensor) -> None:
    if query.dtype not in _HALF or any(t.dtype != query.dtype for t in others):
        found = [str(t.dtype) for t in (query, *others)]
        raise RuntimeError(f"FlashAttention only support fp16 and bf16 data type, got {found}")
    head = query.size(-1)
    if head % 8 or head > _LARGEST_HEAD:
        raise RuntimeError(f"FlashAttention: head size {head} is not a multiple of 8 up to 256")
    if any(t.stride(-1) != 1 for t in (query, *others)):
        raise RuntimeError("FlashAttention: input tensors must have contiguous last dimension")


def _check_efficient(query: Tensor, *others: Tensor) -> None:
    if any(t.dtype != query.dtype for t in others):
        found = [str(t.dtype) for t in (query, *others)]
        raise RuntimeError(f"efficient attention: all tensors need one dtype, got {found}")
    if any(t.stride(-1) != 1 for t in (query, *others)):
        raise RuntimeError("efficient attention: the last dimension must be contiguous")


def _parts(
    offsets_q: Tensor, offsets_k: Tensor, longest_q: int, longest_k: int, query: Tensor, key: Tensor
) -> Iterator[tuple[slice, slice]]:
    """Where each text lies among the queries, and among the keys."""
    found = []
    for offsets, longest, packed in (
        (offsets_q, longest_q, query),
        (offsets_k, longest_k, key),
    ):
        if offsets.dtype != torch.int32 or not offsets.is_contiguous():
            raise RuntimeError(f"cu_seqlens must be contiguous int32, got {offsets.dtype}")
        ends = offsets.tolist()
        lengths = [end - begin for begin, end in itertools.pairwise(ends)]
        if ends[0] != 0 or ends[-1] != packed.size(0) or min(lengths, default=0) < 0:
            raise RuntimeError(f"cu_seqlens {ends} do not divide {packed.size(0)} tokens")
        if max(lengths, default=0) > longest:
            raise RuntimeError(f"a text has {max(lengths)} tokens, the longest is said: {longest}")
        found.append([slice(begin, end) for begin, end in itertools.pairwise(ends)])
    return zip(*found, strict=True)


def _draw_seed() -> int:
    """From the generator of the device: whoever calls a kernel has set it as torch's own."""
    return int(torch.randint(_SEEDS, ()))


def _generator(seed: int) -> torch.Generator:
    return torch.Generator("cpu").manual_seed(seed)


def _heads_first(text: Tensor) -> Tensor:
    """`(n, H, D)` -> `(H, n, D)` in float32."""
    return text.float().transpose(0, 1)


def _tokens_first(tensor: Tensor, like: Tensor) -> Tensor:
    """The same `(N, H, L, D)`, laid out as `(N, L, H, D)`, as the kernels return it."""
    return tensor.to(like.dtype).transpose(1, 2).contiguous().transpose(1, 2)


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


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    generator: torch.Generator,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    probabilities, sums = _probabilities(query, key, is_causal, scale, bias)
    return (probabilities * _kept(probabilities, dropout_p, generator)) @ value, sums


def _gradients(
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
    """Of queries, keys, values and scores."""
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
    generator = _generator(seed)
    for q, k in parts:
        pairs = ((gradient, q), (query, q), (key, k), (value, k))
        texts = (_heads_first(tensor[part]) for tensor, part in pairs)
        gradients = _gradients(*texts, dropout_p, is_causal, scale, generator)
        for into, part, of_text in zip(found, (q, k, k), gradients, strict=False):
            into[part] = of_text.transpose(0, 1).to(into.dtype)
    return found
