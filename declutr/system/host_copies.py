"""Host copies of device tensors, so that what they hold is known without synchronising.

To read a tensor that lies on a GPU, the host has to wait until the GPU has done all it was told to
do before, and then has nothing to do itself until it is told more. But what a batch holds was on
the host before it went over. So a tensor that is sent to a device keeps the tensor it is a copy of,
as an attribute, and whatever must be known on the host is computed from that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_ATTRIBUTE = "_declutr_on_host"


def remember(on_device: Tensor, on_host: Tensor) -> Tensor:
    """Attach `on_host` to `on_device` as its host copy, and return `on_device`.

    A later change in place of `on_device` makes it forget (not one by way of `.data`, of which
    torch keeps no account); `on_host` must not be changed. Copies and pickles of `on_device` do not
    remember.
    """
    if on_device is not on_host:
        setattr(on_device, _ATTRIBUTE, _Remembered(on_host, on_device))
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
    if 0 in tensor.stride():  # expanded: one place in memory cannot be written more than once
        tensor = tensor.contiguous()
    if device.type == "cuda" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    with torch.inference_mode(False):  # torch keeps no account of changes of its tensors
        sent = tensor.to(device, non_blocking=device.type == "cuda")
    return remember(sent, tensor)


def carried(operation: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Apply `operation` to tensors, and to their host copies where all of them have one.

    For cheap operations, such as slices.
    """
    result = operation(*tensors)
    copies = [_known(tensor) for tensor in tensors]
    known = [copy for copy in copies if copy is not None]
    return remember(result, operation(*known)) if len(known) == len(tensors) else result


class Arriving:
    """A tensor on its way from a device to the host, which need not wait for it yet."""

    def __init__(self, tensor: Tensor) -> None:
        in_cuda = tensor.device.type == "cuda"
        self._tensor = tensor.to("cpu", non_blocking=in_cuda)  # page-locked, from a GPU
        self._arrived = None
        if in_cuda:
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(tensor.device))

    def wait(self) -> Tensor:
        """The tensor on the host, once it is whole."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensor


class _Remembered:
    """What a tensor holds, and how often it had been changed when it held that."""

    def __init__(self, copy: Tensor, of: Tensor) -> None:
        self._copy, self._changes = copy, _changes(of)

    def of(self, tensor: Tensor) -> Tensor | None:
        return self._copy if self._changes == _changes(tensor) else None

    def __reduce__(self) -> tuple[Any, ...]:  # for copies, too; a copy counts its changes anew
        return type(None), ()


def _known(tensor: Tensor) -> Tensor | None:
    remembered = getattr(tensor, _ATTRIBUTE, None)
    return None if remembered is None else remembered.of(tensor)


def _changes(tensor: Tensor) -> int | None:
    """How often a tensor was changed in place; those of inference mode do not count."""
    return None if tensor.is_inference() else tensor._version
