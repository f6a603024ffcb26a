"""A CPU that chooses kernels as a CUDA device does, and whose kernels compute nothing.

What is left of a training step is what the host does for it: Python, torch's dispatcher, autograd.
On a GPU that runs ahead of the kernels, and a step cannot take less time.

Stubs are Python functions of a few microseconds, about what it takes to launch a kernel. They give
zeros, so that losses stay finite. Operators that are left alone compute on very small tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_LIBRARIES: list[torch.library.Library] = []
"""Kept, as what they registered goes with them."""

_IN_PLACE = (
    "_fused_adamw_",
    "_foreach_mul_.Scalar",
    "_foreach_mul_.Tensor",
    "_foreach_mul_.ScalarList",
    "_foreach_lerp_.Scalar",
    "_foreach_add_.Scalar",
    "_foreach_addcmul_.Scalar",
    "_foreach_div_.ScalarList",
    "_foreach_addcdiv_.ScalarList",
    "_foreach_sqrt_",
)
"""Operators on lists of tensors that return nothing."""


def install() -> None:
    """Replace kernels and choices for the rest of this process."""
    kernels = torch.library.Library("aten", "IMPL", "CPU")
    for name, stub in _STUBS.items():
        kernels.impl(name, stub)
    for name in _IN_PLACE:
        kernels.impl(name, lambda *args, **kwargs: None)
    # One operator, as on a GPU; elsewhere torch draws, divides and multiplies.
    autograd = torch.library.Library("aten", "IMPL", "AutogradCPU")
    autograd.impl("dropout", _dropout)
    _LIBRARIES.extend([kernels, autograd])
    _many_tensors_at_once()
    _nested_attention_by_flash()


def stub_dense_attention() -> None:
    """Let attention over padded texts be one call of the memory-efficient kernel, which takes masks
    and is what torch chooses on a GPU."""
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if attn_mask is not None and attn_mask.dtype == torch.bool:  # as torch does it in C++
            zero, never = (torch.scalar_tensor(x, dtype=query.dtype) for x in (0.0, -torch.inf))
            attn_mask = torch.where(attn_mask, zero, never)
            length = attn_mask.size(-1)
            if length % 8:
                attn_mask = torch.nn.functional.pad(attn_mask, (0, -length % 8))[..., :length]
            attn_mask = attn_mask.expand(*query.shape[:3], key.size(2))
        return kernel(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]

    torch.nn.functional.scaled_dot_product_attention = attend  # type: ignore[assignment]


def _many_tensors_at_once() -> None:
    from torch.optim import optimizer
    from torch.utils import _foreach_utils

    modules: tuple[Any, ...] = (_foreach_utils, optimizer)
    devices = [*modules[0]._get_foreach_kernels_supported_devices(), "cpu"]
    for module in modules:
        module._get_foreach_kernels_supported_devices = lambda: devices


def _nested_attention_by_flash() -> None:
    """What earlier releases packed with."""
    from torch.nested._internal import sdpa

    def select(*arguments: Any) -> Any:
        sdpa._can_use_flash_sdpa_jagged(sdpa.SDPAParams(*arguments))
        return sdpa.SDPBackend.FLASH_ATTENTION

    sdpa._select_sdp_backend = select


def _dropout(input: Tensor, p: float, train: bool) -> Tensor:
    return torch.native_dropout(input, p, train)[0] if train and p else input


def _random_state() -> Tensor:
    return torch.empty((), dtype=torch.int64)


def _flash(query: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, ...]:
    tokens, heads, _ = query.shape
    seed, unused = torch.empty(2, dtype=torch.uint64), torch.empty((), dtype=torch.uint64)
    return torch.zeros_like(query), query.new_empty(heads, tokens), seed, unused, query.new_empty(0)


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, bias: Any, of_q: Any, of_k: Any, *rest: Any, **_: Any
) -> tuple[Any, ...]:
    rows = query.new_empty(query.size(0), query.size(2), query.size(1))
    return torch.zeros_like(query), rows, _random_state(), _random_state(), *rest[:2]


def _dense(query: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, ...]:
    attended = torch.zeros_like(query.transpose(1, 2)).transpose(1, 2)
    return attended, query.new_empty(query.shape[:3]), _random_state(), _random_state()


def _three(gradient: Tensor, *inputs: Any, **named: Any) -> tuple[Tensor, ...]:
    query, key, value = inputs[:3]
    return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)


def _four(gradient: Tensor, *inputs: Any, **named: Any) -> tuple[Any, ...]:
    return *_three(gradient, *inputs), None


_STUBS = {
    "mm": lambda a, b: a.new_zeros(a.shape[0], b.shape[1]),
    "addmm": lambda c, a, b, beta=1, alpha=1: a.new_zeros(a.shape[0], b.shape[1]),
    "bmm": lambda a, b: a.new_zeros(a.shape[0], a.shape[1], b.shape[2]),
    "gelu": lambda x, approximate="none": torch.zeros_like(x),
    "gelu_backward": lambda gradient, x, approximate="none": torch.zeros_like(x),
    "native_dropout": lambda x, p, train: (
        torch.zeros_like(x),
        torch.empty_like(x, dtype=torch.bool),
    ),
    "native_dropout_backward": lambda gradient, mask, scale: torch.zeros_like(gradient),
    "_foreach_norm.Scalar": lambda tensors, *args, **kwargs: list(
        torch.zeros(len(tensors)).unbind()
    ),
    "_foreach_sqrt": lambda tensors: [torch.empty_like(tensor) for tensor in tensors],
    "_flash_attention_forward": _flash,
    "_flash_attention_backward": _three,
    "_efficient_attention_forward": _efficient,
    "_efficient_attention_backward": _four,
    "_scaled_dot_product_efficient_attention": _dense,
    "_scaled_dot_product_efficient_attention_backward": _four,
}
