"""Memory of the host: kept from one training step to the next, and copies of device tensors in it.

Out of the box, glibc gives the memory of a large tensor back to the system as soon as the tensor is
gone, and the system has to hand out every page of the next one, zeroed. In a training step that
takes up to a third of the time. Kept, that memory is reused, but splits into pieces in time that
fit no tensor; when it has grown by that, it is given back once (`Heap`).

To read a tensor that lies on a GPU, the host has to wait until the GPU has done all it was told to
do before, and then has nothing to do itself until it is told more. But what a batch holds was on
the host before it went over. So a tensor that is sent to a device keeps the tensor it is a copy of,
as an attribute, and whatever must be known on the host is computed from that (`on_host`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_ALL = (1 << 31) - 1  # the largest value these take
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
_SLACK = 1.5  # times what one pass needs, before free memory is given back
_LEAST = 256 << 20  # bytes that are not worth giving back
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_ATTRIBUTE = "_declutr_on_host"


class Heap:
    """Freed memory of this process; `settle` is to be called whenever activations are gone."""

    def __init__(self) -> None:
        self._library = _glibc()
        self._keeps = False
        self._trimmed = False
        self._needed = 0  # bytes resident after a pass that began with nothing to reuse

    def settle(self) -> None:
        """Keep freed memory from now on, and give it back if it has become much more than needed.

        It does nothing on other systems than Linux with glibc, nor if the user has configured
        memory allocation in the environment.
        """
        if self._library is None:
            return
        if not self._keeps:
            self._keeps = True
            self._library.mallopt(_M_MMAP_THRESHOLD, _ALL)
            self._library.mallopt(_M_TRIM_THRESHOLD, _ALL)
        resident = _resident()
        if self._trimmed:
            self._needed, self._trimmed = max(self._needed, resident), False
        elif resident > _SLACK * self._needed and resident - self._needed > _LEAST:
            self._library.malloc_trim(0)
            self._trimmed = True


def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc with its own allocator as it is by default."""
    if any(os.environ.get(name) for name in _VARIABLES) or not Path("/proc/self/statm").exists():
        return None
    try:
        if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
            return None
        library = ctypes.CDLL(None)
        _ = library.mallopt, library.malloc_trim
    except (AttributeError, OSError, ValueError):
        return None
    return library


def _resident() -> int:
    """Bytes of this process in memory, without pages of files."""
    with open("/proc/self/statm", "rb") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * _PAGE


HEAP = Heap()
"""The freed memory of this process."""


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
