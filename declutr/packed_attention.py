"""Attention that keeps within the texts of a packed batch.

Transformers compute attention by `torch.nn.functional.scaled_dot_product_attention`. While
`PackedAttention` is active, that function sees where one text ends and the next begins. So any
transformer of any release packs, without a patch in its code.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from declutr import repeatable_dropout
from declutr.packing import Packing
from declutr.repeatable_dropout import RepeatableDropout

_TOKENS_AT_ONCE = 1024  # of equally long texts: their scores then stay in the cache of a CPU


class CannotPack(ValueError):
    """This transformer's attention is not plain attention over whole texts."""


class PackedAttention(TorchFunctionMode):
    """Within this context, attention over one row `(1, H, T, D)` is attention within each text.

    On a GPU it is a variable-length kernel (torch's, of nested tensors); on a CPU a loop over the
    texts, whose scores are not kept for the backward pass but computed again.

    # Raises

    `CannotPack` : attention with a mask or bias of its own, or over something else than the packed
        row.
    """

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self.packing = packing
        self.calls = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is scaled_dot_product_attention:
            return self._attend(*args, **(kwargs or {}))
        if func is dropout and not torch.compiler.is_compiling():  # compiled, torch's is quick
            return _drop(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def __enter__(self) -> PackedAttention:
        self._around = getattr(_ACTIVE, "mode", None)
        _ACTIVE.mode = self
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        _ACTIVE.mode = self._around
        super().__exit__(*error)

    @torch.compiler.disable  # between layers `torch.compile` finds enough to do
    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        row = (1, self.packing.num_tokens)
        if attn_mask is not None or is_causal or enable_gqa:
            raise CannotPack("its attention has a mask, a bias, or fewer keys than queries")
        if any((t.size(0), t.size(2)) != row for t in (query, key, value)):
            raise CannotPack("its attention does not run over the tokens as they come in")
        self.calls += 1
        scale = query.size(-1) ** -0.5 if scale is None else scale
        device = query.device.type
        if torch.is_autocast_enabled(device):
            # As autocast does for this function: rotary positions leave only values in bfloat16.
            dtype = torch.get_autocast_dtype(device)
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        with torch.autocast(device, enabled=False):
            if device == "cpu":
                return _TextByText.apply(query, key, value, self.packing, dropout_p, scale)
            return attention_of_nested(query, key, value, self.packing, dropout_p, scale)


_ACTIVE = threading.local()  # as torch's stack of modes is


def recomputation_contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
    """`context_fn` for `torch.utils.checkpoint`: what is computed again attends as it did before.

    The backward pass, in which that happens, lies outside of the context.
    """
    mode = getattr(_ACTIVE, "mode", None)
    again = contextlib.nullcontext() if mode is None else PackedAttention(mode.packing)
    return contextlib.nullcontext(), again


def attention_of_nested(
    query: Tensor, key: Tensor, value: Tensor, packing: Packing, dropout_p: float, scale: float
) -> Tensor:
    """Attention within each text by torch's kernels for nested tensors; `(1, H, T, D)` each."""
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            tensor[0].transpose(0, 1),  # (T, H, D)
            packing.offsets,
            # Known here; torch would read them from the device.
            min_seqlen=packing.lengths[-1],
            max_seqlen=packing.lengths[0],
        ).transpose(1, 2)  # (N, H, each length, D)
        for tensor in (query, key, value)
    )
    attended = scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, scale=scale)
    return attended.transpose(1, 2).values().transpose(0, 1)[None]


def _drop(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not training or p == 0 or inplace or input.device.type != "cpu":
        return dropout(input, p, training, inplace)
    return repeatable_dropout.dropout(input, p)


class _TextByText(torch.autograd.Function):
    """Attention within each text, one after another, with dropout on the probabilities.

    torch's CPU kernel for attention has no dropout: with it, torch keeps every probability, mask
    and product of all texts, and spends most of its time drawing one number for each. Here scores
    are computed twice and never kept, and one 64-bit number decides about four probabilities.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        packing: Packing,
        dropout_p: float,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value)
        ctx.packing, ctx.scale = packing, scale
        ctx.dropout = RepeatableDropout(dropout_p)
        output = torch.empty_like(query)
        generator = ctx.dropout.generator()
        for part in _parts(packing):
            q, k, v, o = (_texts(tensor, *part) for tensor in (query, key, value, output))
            kept = ctx.dropout.kept(generator, q.shape[:-1] + k.shape[-2:-1])
            o.copy_(ctx.dropout(_probabilities(q, k, scale), kept) @ v)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with torch.autocast("cpu", enabled=False):
            return *_TextByText._gradients(ctx, gradient), None, None, None

    @staticmethod
    def _gradients(ctx: Any, gradient: Tensor) -> list[Tensor]:
        query, key, value = ctx.saved_tensors
        gradients = [torch.empty_like(tensor) for tensor in (query, key, value)]
        generator = ctx.dropout.generator()
        for part in _parts(ctx.packing):
            q, k, v, g = (_texts(tensor, *part) for tensor in (query, key, value, gradient))
            dq, dk, dv = (_texts(tensor, *part) for tensor in gradients)
            p = _probabilities(q, k, ctx.scale)  # (H, texts, n, n)
            kept = ctx.dropout.kept(generator, p.shape)
            dv.copy_(ctx.dropout(p, kept).transpose(-1, -2) @ g)
            dp = ctx.dropout(g @ v.transpose(-1, -2), kept)
            ds = torch._softmax_backward_data(dp, p, -1, p.dtype).mul_(ctx.scale)
            dq.copy_(ds @ k)
            dk.copy_(ds.transpose(-1, -2) @ q)
        return gradients


def _parts(packing: Packing) -> Iterator[tuple[int, int, int]]:
    """Runs of equally long texts, none much over `_TOKENS_AT_ONCE` unless it is a single text."""
    for start, count, length in packing.runs():
        most = max(1, _TOKENS_AT_ONCE // length)
        for first in range(0, count, most):
            yield start + first * length, min(most, count - first), length


def _texts(tensor: Tensor, start: int, count: int, length: int) -> Tensor:
    """`(1, H, T, D)` -> a view `(H, count, length, D)` of some of its texts."""
    return tensor[0, :, start : start + count * length].unflatten(1, (count, length))


def _probabilities(query: Tensor, key: Tensor, scale: float) -> Tensor:
    return ((query * scale) @ key.transpose(-1, -2)).softmax(dim=-1)
