"""What tensors of a device hold, known on the host without a look at the device.

To read a tensor that lies on a GPU, the host has to wait until the GPU has done all it was told to
do before, and then has nothing to do itself until it is told more. But what a batch holds was on
the host before it went over. So a tensor that is sent to a device keeps the tensor it is a copy of,
as an attribute, and whatever must be known on the host is computed from that.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_ATTRIBUTE = "_declutr_on_host"


def remember(on_device: Tensor, on_host: Tensor) -> Tensor:
    """`on_device`, which holds what `on_host` holds and from now on knows so.

    A later change in place of `on_device` makes it forget; `on_host` must not be changed.
    """
    if on_device is not on_host:
        setattr(on_device, _ATTRIBUTE, (on_host, _changes(on_device)))
    return on_device


def on_host(tensor: Tensor) -> Tensor:
    """What a tensor holds, as a tensor on the host: itself, or the one it was sent from.

    Of a tensor that nothing is remembered of, a copy is made; only then the host waits.
    """
    if tensor.device.type == "cpu":
        return tensor
    known = _known(tensor)
    return tensor.detach().cpu() if known is None else known


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; sent from the host, it remembers what it holds.

    On its way to a GPU it goes through page-locked memory, so that the host does not wait for the
    copy. What is on a device already stays as it is.
    """
    if tensor.device.type != "cpu" or device.type == "cpu":
        return tensor.to(device)
    if device.type != "cuda":
        return remember(tensor.to(device), tensor)
    pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
    return remember(pinned.to(device, non_blocking=True), pinned)


def carried(operation: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """`operation(*tensors)`, of which is remembered what is remembered of all `tensors`.

    The operation is done on the host copies as well: for cheap ones, such as slices.
    """
    result = operation(*tensors)
    copies = [_known(tensor) for tensor in tensors]
    known = [copy for copy in copies if copy is not None]
    return remember(result, operation(*known)) if len(known) == len(tensors) else result


def _known(tensor: Tensor) -> Tensor | None:
    copy, changes = getattr(tensor, _ATTRIBUTE, (None, None))
    return copy if copy is not None and changes == _changes(tensor) else None


def _changes(tensor: Tensor) -> int | None:
    """How often a tensor was changed in place; those of inference mode do not count."""
    return None if tensor.is_inference() else tensor._version
