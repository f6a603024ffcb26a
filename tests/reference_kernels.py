"""What torch's variable-length kernels of CUDA devices compute, on CPU tensors.

Registered for the CPU, they let everything but the kernels themselves run for real without a GPU:
the arguments we pass, torch's own derivatives of these operators, `torch.compile`. They insist on
what the CUDA kernels insist on.
"""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from declutr import packed_attention
from declutr.variable_length_kernels import kernels_of

CALLS: Counter[str] = Counter()


def flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor,
    cum_seq_k: Tensor,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    **others: Any,
) -> tuple[Tensor, ...]:
    CALLS["flash"] += 1
    assert not is_causal and not return_debug_mask
    assert query.dtype in (torch.float16, torch.bfloat16) and query.size(-1) <= 256
    assert query.dim() == 3
    _check((query, key, value), cum_seq_q, cum_seq_k, max_q, max_k)
    seed = _seed(dropout_p)
    output = _attention(query, key, value, cum_seq_q, dropout_p, seed, scale)
    logsumexp = torch.zeros(query.size(1), query.size(0))
    rng_state = torch.stack([seed, seed]).view(torch.uint64)
    return output, logsumexp, rng_state, rng_state.new_empty(()), query.new_empty(0)


def flash_backward(
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
    **others: Any,
) -> tuple[Tensor, ...]:
    CALLS["flash backward"] += 1
    _check((query, key, value), cum_seq_q, cum_seq_k, max_q, max_k)
    seed = rng_state.view(torch.int64)[0]
    return _gradients(grad_out, query, key, value, cum_seq_q, dropout_p, seed, scale)


def efficient_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    **others: Any,
) -> tuple[Tensor | int, ...]:
    CALLS["efficient for a gradient" if compute_log_sumexp else "efficient"] += 1
    assert bias is None and custom_mask_type == 0 and query.dtype != torch.float64
    texts = _unbatched(query, key, value)
    _check(texts, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    seed = _seed(dropout_p)
    output = _attention(*texts, cu_seqlens_q, dropout_p, seed, scale)[None]
    padded = math.ceil(max_seqlen_q / 32) * 32 if compute_log_sumexp else 0
    logsumexp = torch.zeros(len(cu_seqlens_q) - 1, query.size(2), padded)
    return output, logsumexp, seed, seed.new_zeros(()), max_seqlen_q, max_seqlen_k


def efficient_backward(
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
    **others: Any,
) -> tuple[Tensor, ...]:
    CALLS["efficient backward"] += 1
    texts = _unbatched(query, key, value)
    _check(texts, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    assert logsumexp.numel(), "the forward pass was told that there would be no gradient"
    gradients = _gradients(grad_out[0], *texts, cu_seqlens_q, dropout_p, philox_seed, scale)
    return *(gradient[None] for gradient in gradients), query.new_empty(0)


KERNELS = {
    "_flash_attention_forward": flash_forward,
    "_flash_attention_backward": flash_backward,
    "_efficient_attention_forward": efficient_forward,
    "_efficient_attention_backward": efficient_backward,
}


@contextmanager
def registered() -> Iterator[Counter[str]]:
    """torch's operators work on CPU tensors; gives what is called, which is empty at first."""
    CALLS.clear()
    with torch.library._scoped_library("aten", "IMPL") as library:
        for name, kernel in KERNELS.items():
            library.impl(name, kernel, "CPU")
        yield CALLS


@contextmanager
def as_on_a_gpu() -> Iterator[Counter[str]]:
    """And attention over packed texts on the CPU goes the way that it goes on a GPU."""
    kernels_of.cache_clear()
    try:
        with registered() as calls, pytest.MonkeyPatch.context() as patch:
            patch.setattr(packed_attention, "_WITHOUT_KERNELS", ())
            assert all(kernels_of(torch.device("cpu"))) and calls["flash"] == 1  # they are tried
            calls.clear()
            yield calls
    finally:
        kernels_of.cache_clear()


def _unbatched(*tensors: Tensor) -> tuple[Tensor, ...]:
    assert all(tensor.dim() == 4 and tensor.size(0) == 1 for tensor in tensors)
    return tuple(tensor[0] for tensor in tensors)


def _check(
    tensors: tuple[Tensor, ...], starts: Tensor, starts_of_keys: Tensor, longest: int, of_keys: int
) -> None:
    for tensor in tensors:
        assert tensor.stride(-1) == 1 and tensor.size(-1) % 8 == 0
        assert tensor.dtype == tensors[0].dtype and tensor.shape == tensors[0].shape
    for places, length in ((starts, longest), (starts_of_keys, of_keys)):
        assert places.dtype == torch.int32 and places.is_contiguous() and places.dim() == 1
        assert places[0] == 0 and places[-1] == tensors[0].size(0)
        assert int(places.diff().max()) == length


def _seed(dropout_p: float) -> Tensor:
    return torch.randint(1 << 62, ()) if dropout_p else torch.zeros((), dtype=torch.int64)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    dropout_p: float,
    seed: Tensor,
    scale: float | None,
) -> Tensor:
    generator = torch.Generator().manual_seed(int(seed))
    output = torch.empty_like(query)
    for text in pairwise(starts.tolist()):
        q, k, v = (_text(tensor, text) for tensor in (query, key, value))
        probabilities = _probabilities(q, k, scale)
        kept = _kept(probabilities.shape, dropout_p, generator)
        _text(output, text, as_float=False).copy_(probabilities * kept @ v)
    return output


def _gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    dropout_p: float,
    seed: Tensor,
    scale: float | None,
) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(int(seed))
    gradients = tuple(torch.empty_like(tensor) for tensor in (query, key, value))
    for text in pairwise(starts.tolist()):
        q, k, v, g = (_text(tensor, text) for tensor in (query, key, value, gradient))
        dq, dk, dv = (_text(tensor, text, as_float=False) for tensor in gradients)
        probabilities = _probabilities(q, k, scale)
        kept = _kept(probabilities.shape, dropout_p, generator)
        dv.copy_((probabilities * kept).transpose(1, 2) @ g)
        dp = g @ v.transpose(1, 2) * kept
        ds = probabilities * (dp - (dp * probabilities).sum(-1, keepdim=True)) * _scale(q, scale)
        dq.copy_(ds @ k)
        dk.copy_(ds.transpose(1, 2) @ q)
    return gradients


def _text(tensor: Tensor, text: tuple[int, int], as_float: bool = True) -> Tensor:
    """`(T, H, D)` -> `(H, n, D)`."""
    tokens = tensor[slice(*text)].transpose(0, 1)
    return tokens.float() if as_float else tokens


def _probabilities(query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    return (query @ key.transpose(1, 2) * _scale(query, scale)).softmax(dim=-1)


def _scale(query: Tensor, scale: float | None) -> float:
    return query.size(-1) ** -0.5 if scale is None else scale


def _kept(shape: torch.Size, dropout_p: float, generator: torch.Generator) -> Tensor:
    if not dropout_p:
        return torch.ones(shape)
    return (torch.rand(shape, generator=generator) >= dropout_p) / (1 - dropout_p)
