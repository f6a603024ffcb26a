"""Variable-length attention by torch's own kernels for CUDA devices.

torch calls these kernels from its nested tensors and, since 2.10, from
`torch.nn.attention.varlen`, which has no dropout. The operators are private to torch, so only this
module and `declutr.transformer.memory_efficient_attention` name them. They have their own
derivatives, `torch.compile` traces them, and `torch.use_deterministic_algorithms` makes their
backward passes deterministic.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import pad

from declutr.system.host_memory import to_device
from declutr.transformer.memory_efficient_attention import efficient_attention

logger = logging.getLogger(__name__)

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""The dtypes for which there are kernels."""

_OF_FLASH = DTYPES[1:]
# For wider heads, some GPUs have no backward pass with dropout.
_WIDEST_FLASH = 192
# The kernels read the vectors of a head in blocks of 16 bytes, which are eight 16-bit numbers.
_ALIGNMENT = 8


class Kernels(NamedTuple):
    """The kernels that run on a device, forward and backward."""

    flash: bool
    """Whether flash attention runs; it needs Ampere or newer, and a build of torch that has it."""

    efficient: bool
    """Whether memory-efficient attention runs in float32."""

    efficient_in_bfloat16: bool
    """Whether memory-efficient attention runs in bfloat16, which needs Ampere or newer."""


def attend(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
    """Return attention within each text of a packed row by one kernel.

    Flash attention is used for 16-bit dtypes and heads of up to 192 features, and memory-efficient
    attention otherwise, in float32 if that kernel does not support bfloat16.

    # Parameters

    query, key, value : `(1, H, T, D)`.
    others : `cu_seqlens`, int32, `(N + 1,)`, on the device, the offset at which each text begins,
        and T; `longest`, the number of tokens of the longest text; `dropout_p`, the probability of
        dropout on the attention probabilities; `scale`, the factor of the scores; and the `Kernels`
        that run on the device, see `kernels_of`.

    # Returns

    `(1, H, T, D)`.

    # Raises

    `NotImplementedError` : no kernel runs on this device in this dtype.
    """
    *texts, kernels = others
    # The kernels take (1, T, H, D).
    q, k, v = (_aligned(tensor.transpose(1, 2)) for tensor in (query, key, value))
    if kernels.flash and q.dtype in _OF_FLASH and q.size(-1) <= _WIDEST_FLASH:
        attended = flash_attention(q, k, v, *texts)
    elif not kernels.efficient:
        raise NotImplementedError(f"torch has no kernel for attention over packed {q.dtype} here")
    else:
        if q.dtype == torch.bfloat16 and not kernels.efficient_in_bfloat16:
            q, k, v = q.float(), k.float(), v.float()
        attended = efficient_attention(q, k, v, *texts).to(query.dtype)
    return attended[..., : query.size(-1)].transpose(1, 2)


@functools.cache
def kernels_of(device: torch.device) -> Kernels:
    """Return which kernels run on a device; each is tried once per process."""
    return Kernels(
        _runs(flash_attention, torch.bfloat16, device),
        # On ROCm the backward pass allocates too little memory for the sums of several texts.
        torch.version.hip is None and _runs(efficient_attention, torch.float32, device),
        torch.version.hip is None and _runs(efficient_attention, torch.bfloat16, device),
    )


def _runs(kernel: Callable[..., Tensor], dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether a kernel runs forward and backward on two short texts.

    It runs without dropout, so that no random numbers are drawn.
    """
    try:
        autocast = torch.autocast(device.type, enabled=False)
        own = saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
        # This may run inside activation checkpointing, which must not save these tensors.
        with torch.inference_mode(False), torch.enable_grad(), autocast, own:
            tokens = torch.ones(1, 3, 1, _ALIGNMENT, dtype=dtype, device=device, requires_grad=True)
            texts = to_device(torch.tensor([0, 2, 3], dtype=torch.int32), device)
            attended = kernel(tokens, tokens, tokens, texts, 2, 0.0, 1.0)
            attended.backward(torch.ones_like(attended))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # includes NotImplementedError
        logger.info(
            f"torch's {kernel.__name__.removesuffix('_attention')} attention does not run on "
            f"{device} in {str(dtype).removeprefix('torch.')} ({error}): texts are packed there "
            "with what does, or not at all."
        )
        return False
    return True


def flash_attention(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> Tensor:
    """Return attention within each text of a packed row by torch's flash attention.

    # Parameters

    query, key, value : `(1, T, H, D)`, in a 16-bit dtype.
    others : `cu_seqlens, longest, dropout_p, scale`, as of `attend`.

    # Returns

    `(1, T, H, D)`.
    """
    cu_seqlens, longest, dropout_p, scale = others
    # Arguments are passed by name, because releases add new ones. All since 2.6 have these.
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
    """Return the tensor with contiguous features, padded to a multiple of eight for the kernels."""
    missing = -tensor.size(-1) % _ALIGNMENT
    if missing:  # zeros change neither the scores nor the sums
        return pad(tensor, (0, missing))
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
