"""Variable-length attention on a CPU: one text after another, as a custom operator of torch.

Without dropout, torch's own kernel, which has none, is used where it is the quickest. With dropout,
torch would keep the probabilities, masks and products of all texts, and spend most of its time
drawing a random number for each probability. Here scores are computed twice and never kept, for as
many heads at once as fit the cache, and one 64-bit number decides about four probabilities.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from declutr.transformer.text_runs import runs

_INPUTS = "Tensor query, Tensor key, Tensor value, Tensor cu_seqlens, Tensor? seed"
_NUMBERS = "float dropout_p, float scale"
_OUTPUTS = "Tensor output, Tensor sums"

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def attend(
    query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor, dropout_p: float, scale: float
) -> Tensor:
    """Return attention `(1, H, T, D)` within each text of a packed row; probabilities have dropout.

    `query`, `key` and `value` are `(1, H, T, D)`. `cu_seqlens` `(N + 1,)` has the offsets at which
    texts begin, and T. `dropout_p` is the probability of dropout, `scale` the factor of scores.
    To `torch.compile` it is one operator, not compiled again for texts of other lengths.
    """
    seed = None
    if dropout_p:
        from declutr.transformer.repeatable_dropout import draw_seed  # needed in training only

        seed = draw_seed(dropout_p)
    trained = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    return _attention(query, key, value, cu_seqlens, seed, dropout_p, scale, trained)[0]


@torch.library.custom_op(
    "declutr::attention_text_by_text",
    mutates_args=(),
    device_types="cpu",
    schema=f"({_INPUTS}, {_NUMBERS}, bool trained) -> (Tensor, Tensor)",
)
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    seed: Tensor | None,
    dropout_p: float,
    scale: float,
    trained: bool,
) -> tuple[Tensor, Tensor]:
    """Return the output `(1, H, T, D)` and log sums `(T, H)`.

    Log sums are defined if torch's kernel computed them, and if they are needed for gradients.
    """
    query, key, value = (_flat(tensor) for tensor in (query, key, value))
    output, sums = _like(query), _sums_like(query)
    dropout = _dropout(dropout_p, seed)
    with torch.autocast("cpu", enabled=False):
        for run in runs(cu_seqlens):
            if dropout is None and run.suits_torch(query.dtype):
                rows = run.full_rows()
                mask = None if rows == run.length else _beyond(run.length, rows, sums.dtype)
                for part in run.parts(rows, query.size(2)):
                    read = part.texts_with(key, rows), part.texts_with(value, rows)
                    found = _flash(part.texts(query), *read, attn_mask=mask, scale=scale)
                    if part.number * part.length == query.size(2):  # all texts: no copy
                        attended, sums = (each.transpose(1, 2).flatten(0, 1) for each in found)
                        return attended.transpose(0, 1)[None], sums
                    part.texts(output).copy_(found[0])
                    if trained:
                        part.texts(_as_heads(sums)).copy_(found[1][..., None])
                continue
            rows = run.full_rows_of_softmax(query.dtype) if dropout is None else run.length
            for block, levels in run.blocks(query, dropout):
                q, o = _operand(block.of(query)), block.of(output)
                k, v = (_operand(block.of(tensor, rows)) for tensor in (key, value))
                p = _probabilities(q * scale, k)
                if dropout is None:
                    o.copy_(p @ v)
                else:
                    o.copy_((dropout.zero(p, levels, out=p) @ v).mul_(dropout.scale))
    return output, sums


@torch.library.custom_op(
    "declutr::attention_text_by_text_backward",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor gradient, {_INPUTS}, {_OUTPUTS}, {_NUMBERS}) -> (Tensor, Tensor, Tensor)",
)
def _gradients(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    seed: Tensor | None,
    output: Tensor,
    sums: Tensor,
    dropout_p: float,
    scale: float,
) -> tuple[Tensor, ...]:
    gradient, query, key, value = (_flat(t) for t in (gradient, query, key, value))
    gradients = tuple(_like(tensor) for tensor in (query, key, value))
    dropout = _dropout(dropout_p, seed)
    with torch.autocast("cpu", enabled=False):
        for run in runs(cu_seqlens):
            if dropout is None and run.suits_torch_backward(query.dtype):
                known = [run.texts(t) for t in (gradient, query, key, value, output)]
                known.append(run.texts(_as_heads(sums)).squeeze(-1))
                found = _flash_backward(*known, 0.0, False, scale=scale)
                for tensor, part in zip(gradients, found, strict=True):
                    run.texts(tensor).copy_(part)
                continue
            for block, levels in run.blocks(query, dropout):
                q, k, v, g = (_operand(block.of(t)) for t in (query, key, value, gradient))
                dq, dk, dv = (block.of(tensor) for tensor in gradients)
                q = q * scale
                p = kept = _probabilities(q, k)
                if dropout is not None:
                    g = g * dropout.scale
                    kept = dropout.zero(p, levels, out=torch.empty_like(p))
                dv.copy_(kept.transpose(-1, -2) @ g)
                dp = g @ v.transpose(-1, -2)
                if dropout is not None:
                    dropout.zero(dp, levels, out=dp)
                ds = torch._softmax_backward_data(dp, p, -1, p.dtype)
                dq.copy_((ds @ k).mul_(scale))
                dk.copy_(ds.transpose(-1, -2) @ q)
    return gradients


@_attention.register_fake
def _(query: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    return _like(query), _sums_like(query)


@_gradients.register_fake
def _(gradient: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(_like(tensor) for tensor in inputs[:3])


def _remember(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.dropout_p, ctx.scale, _ = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _gradients(gradient, *ctx.saved_tensors, ctx.dropout_p, ctx.scale)
    return *gradients, None, None, None, None, None


_attention.register_autograd(_backward, setup_context=_remember)


def _dropout(probability: float, seed: Tensor | None) -> Any:
    if seed is None:
        return None
    from declutr.transformer.repeatable_dropout import RepeatableDropout

    return RepeatableDropout(probability, seed)


@lru_cache(maxsize=512)  # of each length one: those of long texts would fill memory
def _beyond(length: int, rows: int, dtype: torch.dtype) -> Tensor:
    """Return a mask `(1, rows)` to add to scores, which hides all after the first `length`."""
    mask = torch.zeros(1, rows, dtype=dtype, device="cpu")
    mask[:, length:] = -torch.inf
    return mask


def _like(tensor: Tensor) -> Tensor:
    """Return a new tensor `(1, H, T, D)` in the memory order of the next layer, token by token."""
    _, heads, tokens, width = tensor.shape
    return tensor.new_empty(tokens, heads, width).transpose(0, 1)[None]


def _sums_like(query: Tensor) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    return query.new_empty(query.size(2), query.size(1), dtype=wide)


def _as_heads(sums: Tensor) -> Tensor:
    """Return log sums `(T, H)` as `(1, H, T, 1)`."""
    return sums.t()[None, ..., None]


def _flat(tensor: Tensor) -> Tensor:
    """Return the tensor with a contiguous last axis, which torch's kernel assumes unchecked."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _operand(block: Tensor) -> Tensor:
    """Return a block as products read it in its dtype without copying it each time.

    In bfloat16 they copy an operand whose matrices are not contiguous; in float32 they do not.
    """
    return block.contiguous() if block.element_size() == 2 else block


def _probabilities(query: Tensor, key: Tensor) -> Tensor:
    """Return probabilities of keys `(..., rows, D)`, which are 0 beyond as many as of queries."""
    scores = query @ key.transpose(-1, -2)
    length = query.size(-2)
    if length < scores.size(-1):
        scores[..., length:] = -torch.inf
    return scores.softmax(dim=-1)
