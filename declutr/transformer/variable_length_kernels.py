"""Attention over texts end to end by torch's variable-length kernels for CUDA devices.

torch calls these kernels from its nested tensors and, since 2.10, from
`torch.nn.attention.varlen`, which has no dropout. The operators themselves are private to torch;
no other module than `memory_efficient` names them as well. They carry their own derivatives,
`torch.compile` traces them, and `torch.use_deterministic_algorithms` makes their backward passes
deterministic.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import pad

from declutr.system.host_memory import to_device
from declutr.transformer.memory_efficient_attention import efficient_attention

logger = logging.getLogger(__name__)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""What there are kernels for."""

_OF_FLASH = DTYPES[1:]
# Beyond this, some GPUs have no backward pass with dropout.
_WIDEST_FLASH = 192
# Vectors of heads are read in blocks of 16 bytes.
_ALIGNMENT = 8


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    dropout_p: float,
    scale: float,
    kernels: Kernels,
) -> Tensor:
    """Attention within each text of a row, `(1, H, T, D)` each, by one kernel.

    Flash attention for numbers of 16 bits and heads of up to 192 features, memory-efficient
    attention otherwise (computed in float32 where that kernel does not take bfloat16). Returns
    `(1, H, T, D)`.

    # Parameters

    cu_seqlens : int32 `(N + 1,)`, on the device: where each text begins, and T.
    longest : tokens of the longest text.
    dropout_p, scale : of the probabilities, and of the scores.
    kernels : what there is, see `kernels_of`.

    # Raises

    `NotImplementedError` : no kernel runs on this device in this dtype.
    """
    width = query.size(-1)
    # (1, T, H, D), without a copy
    q, k, v = (_aligned(tensor.transpose(1, 2)) for tensor in (query, key, value))
    texts = (cu_seqlens, longest, dropout_p, scale)
    if kernels.flash and q.dtype in _OF_FLASH and q.size(-1) <= _WIDEST_FLASH:
        attended = flash_attention(q, k, v, *texts)
    elif not kernels.efficient:
        raise NotImplementedError(f"torch has no kernel for attention over packed {q.dtype} here")
    else:
        if q.dtype == torch.bfloat16 and not kernels.efficient_in_bfloat16:
            q, k, v = q.float(), k.float(), v.float()
        attended = efficient_attention(q, k, v, *texts).to(query.dtype)
    if attended.size(-1) != width:
        attended = attended[..., :width]
    return attended.transpose(1, 2)


class Kernels(NamedTuple):
    """Which kernels run on a device, forward and backward."""

    flash: bool
    """Flash attention: not before Ampere, and not in every build of torch."""

    efficient: bool
    """Memory-efficient attention in float32."""

    efficient_in_bfloat16: bool
    """The same in bfloat16: not before Ampere."""


@functools.cache
def kernels_of(device: torch.device) -> Kernels:
    """What runs on this device, which is tried once."""
    return Kernels(
        _runs(flash_attention, torch.bfloat16, device),
        # On ROCm its backward pass has too little room for the sums of more than one text.
        torch.version.hip is None and _runs(efficient_attention, torch.float32, device),
        torch.version.hip is None and _runs(efficient_attention, torch.bfloat16, device),
    )


def _runs(kernel: Callable[..., Tensor], dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a kernel attends within two texts, and back; without dropout, which would draw."""
    try:
        autocast = torch.autocast(device.type, enabled=False)
        own = saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
        # The first pass may be within a checkpoint, which must not take these tensors for its own.
        with torch.inference_mode(False), torch.enable_grad(), autocast, own:
            tokens = torch.ones(1, 3, 1, _ALIGNMENT, dtype=dtype, device=device, requires_grad=True)
            texts = to_device(torch.tensor([0, 2, 3], dtype=torch.int32), device)
            attended = kernel(tokens, tokens, tokens, texts, 2, 0.0, 1.0)
            attended.backward(torch.ones_like(attended))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # NotImplementedError, too
        logger.info(
            "torch's %s attention does not run on %s in %s (%s): texts are packed there with what "
            "does, or not at all.",
            kernel.__name__.removesuffix("_attention"),
            device,
            str(dtype).removeprefix("torch."),
            error,
        )
        return False
    return True


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Return attention `(1, T, H, D)`."""
    # Arguments by name: releases add some, and all from 2.6 on have these.
    attended, *_ = torch.ops.aten._flash_attention_forward.default(
        query=query.squeeze(0),
        key=key.squeeze(0),
        value=value.squeeze(0),
        cum_seq_q=cu_seqlens,
        cum_seq_k=cu_seqlens,
        max_q=longest,
        max_k=longest,
        dropout_p=dropout_p,
        is_causal=False,
        return_debug_mask=False,
        scale=scale,
    )
    return attended.unsqueeze(0)


def _aligned(tensor: Tensor) -> Tensor:
    """With features that both kernels take: next to each other, a multiple of eight of them."""
    missing = -tensor.size(-1) % _ALIGNMENT
    if missing:  # zeros, which change neither scores nor what is summed
        return pad(tensor, (0, missing))
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
