"""What CUDA refuses, what it waits for, and what it launches."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from . import waits

aten = torch.ops.aten

# Sizes or values that the host must know: it waits until they are there.
_WAITS = {
    aten._local_scalar_dense.default: "item",
    aten.is_nonzero.default: "item",
    aten.equal.default: "equal",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten._unique2.default: "unique",
    aten.unique_consecutive.default: "unique",
    aten.unique_dim.default: "unique",
    aten.bincount.default: "bincount",
    aten.multinomial.default: "multinomial",
    aten._linalg_check_errors.default: "check of a decomposition",
}
# Tensors of the host are welcome in these; an index is copied.
_INDEXED = {aten.index.Tensor, aten._unsafe_index.Tensor}
_INDEXED |= {
    getattr(aten, name).default
    for name in ("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
}
_LENGTHS_ON_HOST = {aten._pack_padded_sequence.default, aten._pack_padded_sequence_backward.default}
HOST_OUTPUTS = {aten._pack_padded_sequence.default: {1}}
# No kernel runs, beside views.
_NO_KERNEL = {aten.empty.memory_format, aten.set_.source_Tensor}
_NO_KERNEL |= {
    getattr(aten, name).default
    for name in (
        *("empty_strided", "empty_like", "new_empty", "new_empty_strided", "resize_"),
        *("detach", "lift_fresh", "_unsafe_view", "_reshape_alias"),
        *("is_same_size", "is_pinned", "record_stream"),
    )
}
# `addmm_cuda` and its like are for floating point alone.
_PRODUCTS = {getattr(aten, name).default for name in ("mm", "bmm", "addmm", "baddbmm", "mv", "dot")}
_JOINED = {aten.cat.default, aten.stack.default}


def check(func: Any, args: tuple, tensors: list[Tensor], device_tensor: type) -> None:
    """Refuse tensors of the host beside those of the device, and dtypes, as CUDA does.

    A number of the host `()` is a constant to most kernels.
    """
    hosts = [t for t in tensors if not isinstance(t, device_tensor)]
    ours = len(tensors) - len(hosts)
    if ours and func in _PRODUCTS and not tensors[0].is_floating_point():
        raise NotImplementedError(f'"{func}" of CUDA not implemented for {tensors[0].dtype}')
    if not ours or not hosts or func is aten.copy_.default or func in _LENGTHS_ON_HOST:
        return
    if func in _INDEXED:
        values = args[2:3]
        if isinstance(args[0], device_tensor) and all(
            isinstance(v, device_tensor) or v.dim() == 0 for v in values
        ):
            return
    else:
        written = func._schema.is_mutable and any(args[0] is t for t in hosts)
        if not written and func not in _JOINED and all(t.dim() == 0 for t in hosts):
            return
    shapes = ", ".join(f"{t.device} {tuple(t.shape)} {t.dtype}" for t in tensors)
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
        f"and cpu, in {func}: {shapes}"
    )


def record_wait(func: Any, args: tuple, kwargs: dict[str, Any], device_tensor: type) -> None:
    """What this operator makes the host wait for, if anything; at least one argument is ours."""
    if func in _WAITS:
        waits.wait(_WAITS[func])
    elif func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
        waits.wait("repeat_interleave of a tensor")
    elif func in _INDEXED:
        indices = [t for t in args[1] if t is not None]
        if _is_masked_fill(args, kwargs, indices, device_tensor):
            return
        if any(t.dtype in (torch.bool, torch.uint8) for t in indices):
            waits.wait("boolean index")
        for _ in (t for t in indices if not isinstance(t, device_tensor)):
            waits.wait("index on the host")
        if any(not isinstance(value, device_tensor) for value in args[2:3]):
            waits.wait("value on the host")
    elif func is aten.where.self and not all(isinstance(t, device_tensor) for t in args):
        waits.wait("where with a number of the host")


def _is_masked_fill(
    args: tuple, kwargs: dict[str, Any], indices: list[Tensor], device_tensor: type
) -> bool:
    """torch writes one number of the host through one boolean mask by `masked_fill_`."""
    accumulates = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    one_number = len(args) > 2 and args[2].numel() == 1 and not isinstance(args[2], device_tensor)
    one_mask = len(indices) == 1 and indices[0].dtype in (torch.bool, torch.uint8)
    return one_number and one_mask and not accumulates


def record_copy(host: Tensor, to_device: bool, non_blocking: bool) -> None:
    """A copy between host and device: from pinned memory, and if asked so, nothing waits."""
    if not to_device:
        # `to("cpu", non_blocking=True)` copies to pinned memory by itself.
        if not non_blocking:
            waits.wait("copy to the host")
    elif not host.is_pinned():
        waits.wait("copy from pageable memory")
    elif not non_blocking:
        waits.wait("blocking copy to the device")


def record_launch(func: Any) -> None:
    """A kernel or a copy, unless the operator is a view or only memory."""
    if _runs_kernel(func):
        waits.launch(func.name())


@cache
def _runs_kernel(func: Any) -> bool:
    return func not in _NO_KERNEL and not func.is_view
