"""torch's memory-efficient attention over packed texts, as one operator for `torch.compile`.

The operators of torch used here are private, see `declutr.transformer.variable_length_kernels`.
"""

from typing import Any

import torch
from torch import Tensor


def efficient_attention(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
    """Return attention within each text of a packed row.

    # Parameters

    query, key, value : `(1, T, H, D)`.
    others : `cu_seqlens, longest, dropout_p, scale`, as of
        `declutr.transformer.variable_length_kernels.attend`.

    # Returns

    `(1, T, H, D)`.
    """
    differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    run: Any = _as_one_operator if torch.compiler.is_compiling() else _forward
    return run(query, key, value, *others, differentiated)[0]


def _forward(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> tuple[Tensor, ...]:
    """Return attention, the logarithms of its sums, and the seed and offset of its dropout."""
    *texts, differentiated = others
    return torch.ops.aten._efficient_attention_forward.default(
        query=query, key=key, value=value, compute_log_sumexp=differentiated, **_of_texts(*texts)
    )[:4]


def _of_texts(cu_seqlens: Tensor, longest: int, dropout_p: float, scale: float) -> dict[str, Any]:
    """Return the arguments that the operators of torch have in common."""
    return {
        **dict.fromkeys(("cu_seqlens_q", "cu_seqlens_k"), cu_seqlens),
        **dict.fromkeys(("max_seqlen_q", "max_seqlen_k"), longest),
        **{"bias": None, "custom_mask_type": 0, "dropout_p": dropout_p, "scale": scale},
    }


# Until torch 2.15, `torch.compile` fails at the derivative of that operator, because the shapes
# that torch declares for its outputs ignore one of its inputs. So compiled code calls the operator
# below, which wraps it.

_as_one_operator = torch.library.custom_op(
    "declutr::efficient_attention",
    _forward,
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, Tensor cu_seqlens, SymInt longest, "
    "float dropout_p, float scale, bool differentiated) -> (Tensor, Tensor, Tensor, Tensor)",
)


@torch.library.custom_op(
    "declutr::efficient_attention_backward",
    mutates_args=(),
    schema="(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor cu_seqlens, "
    "Tensor output, Tensor logsumexp, Tensor seed, Tensor offset, SymInt longest, "
    "float dropout_p, float scale) -> (Tensor, Tensor, Tensor)",
)
def _backward(gradient: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    query, key, value, cu_seqlens, output, logsumexp, seed, offset, *numbers = inputs
    return torch.ops.aten._efficient_attention_backward.default(
        grad_out_=gradient,
        query=query,
        key=key,
        value=value,
        out=output,
        logsumexp=logsumexp,
        philox_seed=seed,
        philox_offset=offset,
        bias_requires_grad=False,
        **_of_texts(cu_seqlens, *numbers),
    )[:3]


@_as_one_operator.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> tuple[Tensor, ...]:
    cu_seqlens, longest, _, _, differentiated = others
    sums = -(-longest // 32) * 32 if differentiated else 0  # as the kernel aligns them
    shape = (cu_seqlens.size(0) - 1, query.size(2), sums)
    number = query.new_empty((), dtype=torch.int64)
    lengths = query.new_empty(shape, dtype=torch.float32)
    return query.new_empty(query.shape), lengths, number, torch.empty_like(number)


@_backward.register_fake
def _(gradient: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in inputs[:3])


def _remember(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.longest, ctx.dropout_p, ctx.scale, _ = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, gradient: Tensor, *of_others: Any) -> tuple[Tensor | None, ...]:
    numbers = (ctx.longest, ctx.dropout_p, ctx.scale)
    return *_backward(gradient, *ctx.saved_tensors, *numbers), *[None] * 5


_as_one_operator.register_autograd(_differentiate, setup_context=_remember)
