"""Variable-length attention on a CPU: one text after another, as a custom operator of torch.

Without dropout, torch's own kernel, which has none, is used where it is the quickest. With dropout,
torch would keep the probabilities, masks and products of all texts, and spend most of its time
drawing a random number for each probability. Here scores are computed twice and never kept, for as
many heads at once as fit the cache, and one 64-bit number decides about four probabilities.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from declutr.system.processors import instructions

_TOKENS_AT_ONCE = 1024  # tokens of equally long texts that are computed together

# Scores per thread that are computed together, by the bytes of a value. In float32, several such
# tensors fit the cache of a core. In bfloat16, large products help oneDNN more than the cache does.
_SCORES_AT_ONCE = {2: 1 << 22, 4: 1 << 18, 8: 1 << 17}

# Measured times of torch's kernel, relative to separate products and softmax. In float32 it takes
# 0.5 to 0.95 for texts of at most _SHORT tokens, and of _LONG tokens or more (_LONG_TOGETHER where
# several texts have the same length); between these lengths up to 1.4. In bfloat16 it takes 0.2 to
# 1 at any length on processors with AMX, and 1.3 to 2.5 on others; its backward pass up to 3.
_SHORT, _LONG, _LONG_TOGETHER = 16, 160, 64

_INPUTS = "Tensor query, Tensor key, Tensor value, Tensor cu_seqlens, Tensor? seed"
_NUMBERS = "float dropout_p, float scale"
_OUTPUTS = "Tensor output, Tensor sums"
_ALL = slice(None)

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
    if not dropout_p:
        return _attention(query, key, value, cu_seqlens, None, dropout_p, scale)[0]
    from declutr.transformer.repeatable_dropout import draw_seed  # needed in training only

    seed = draw_seed(dropout_p)
    return _attention(query, key, value, cu_seqlens, seed, dropout_p, scale)[0]


@torch.library.custom_op(
    "declutr::attention_text_by_text",
    mutates_args=(),
    device_types="cpu",
    schema=f"({_INPUTS}, {_NUMBERS}) -> (Tensor, Tensor)",
)
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    seed: Tensor | None,
    dropout_p: float,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Return the output `(1, H, T, D)` and log sums `(T, H)`, which only torch's kernel defines."""
    query, key, value = (_flat(tensor) for tensor in (query, key, value))
    output, sums = _like(query), _sums_like(query)
    dropout = _dropout(dropout_p, seed)
    with torch.autocast("cpu", enabled=False):
        for run in _runs(cu_seqlens):
            if dropout is None and run.suits_torch(query.dtype):
                found = _flash(*(run.texts(t) for t in (query, key, value)), scale=scale)
                if run.number * run.length == query.size(2):  # one run has all texts: no copy
                    attended, logarithms = (part.transpose(1, 2).flatten(0, 1) for part in found)
                    return attended.transpose(0, 1)[None], logarithms
                for tensor, part in zip((output, sums.t()[None]), found, strict=True):
                    run.texts(tensor).copy_(part)
                continue
            for block, levels in run.blocks(query, dropout):
                q, k, v, o = (block.of(tensor) for tensor in (query, key, value, output))
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
        for run in _runs(cu_seqlens):
            if dropout is None and run.suits_torch(query.dtype) and query.element_size() > 2:
                known = (gradient, query, key, value, output, sums.t()[None])
                found = _flash_backward(*(run.texts(t) for t in known), 0.0, False, scale=scale)
                for tensor, part in zip(gradients, found, strict=True):
                    run.texts(tensor).copy_(part)
                continue
            for block, levels in run.blocks(query, dropout):
                q, k, v, g = (block.of(tensor) for tensor in (query, key, value, gradient))
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
    *tensors, ctx.dropout_p, ctx.scale = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    gradients = _gradients(gradient, *ctx.saved_tensors, ctx.dropout_p, ctx.scale)
    return *gradients, None, None, None, None


_attention.register_autograd(_backward, setup_context=_remember)


class _Block(NamedTuple):
    """Some heads of consecutive texts of the same length."""

    start: int
    number: int
    length: int
    heads: slice

    def of(self, tensor: Tensor) -> Tensor:
        """Return a view `(heads, number, length, ...)` of a tensor `(1, H, T, ...)`."""
        part = tensor[0].narrow(1, self.start, self.number * self.length)
        part = part if self.heads == _ALL else part[self.heads]
        if self.number == 1:  # the common case for different lengths, where `unflatten` is slower
            return part.unsqueeze(1)
        return part.unflatten(1, (self.number, self.length))


class _Run(NamedTuple):
    """A run of consecutive texts of the same length."""

    start: int
    number: int
    length: int

    def suits_torch(self, dtype: torch.dtype) -> bool:
        """Return whether torch's kernel is the quickest for these texts."""
        if dtype.itemsize == 2:
            return "amx" in instructions()
        long = _LONG if self.number == 1 else _LONG_TOGETHER
        return not _SHORT < self.length < long

    def texts(self, tensor: Tensor) -> Tensor:
        """Return a view `(number, H, length, ...)` of a tensor `(1, H, T, ...)`."""
        return _Block(*self, _ALL).of(tensor).transpose(0, 1)

    def blocks(self, query: Tensor, dropout: Any) -> Iterator[tuple[_Block, Tensor]]:
        """Yield blocks that fit the cache, with levels of dropout that threads do not change."""
        heads, at_once = query.size(1), max(1, _TOKENS_AT_ONCE // self.length)
        most = _SCORES_AT_ONCE[query.element_size()] * torch.get_num_threads()
        nothing = query.new_empty(0)
        for first in range(0, self.number, at_once):
            number = min(at_once, self.number - first)
            start = self.start + first * self.length
            if dropout is not None:
                levels = dropout.draw(torch.Size((heads, number, self.length, self.length)))
            step = max(1, most // (number * self.length**2))
            for head in range(0, heads, step):
                some = slice(head, head + step) if step < heads else _ALL
                drawn = nothing if dropout is None else dropout.comparable(levels[some], query)
                yield _Block(start, number, self.length, some), drawn


def _dropout(probability: float, seed: Tensor | None) -> Any:
    if seed is None:
        return None
    from declutr.transformer.repeatable_dropout import RepeatableDropout

    return RepeatableDropout(probability, seed)


def _runs(cu_seqlens: Tensor) -> Iterator[_Run]:
    start = 0
    for length, texts in groupby(cu_seqlens.diff().tolist()):
        run = _Run(start, len(list(texts)), length)
        yield run
        start += run.number * length


def _like(tensor: Tensor) -> Tensor:
    """Return a new tensor `(1, H, T, D)` in the memory order of the next layer, token by token."""
    _, heads, tokens, width = tensor.shape
    return tensor.new_empty(tokens, heads, width).transpose(0, 1)[None]


def _sums_like(query: Tensor) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    return query.new_empty(query.size(2), query.size(1), dtype=wide)


def _flat(tensor: Tensor) -> Tensor:
    """Return the tensor with a contiguous last axis, which torch's kernel assumes unchecked."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _probabilities(query: Tensor, key: Tensor) -> Tensor:
    return (query @ key.transpose(-1, -2)).softmax(dim=-1)
