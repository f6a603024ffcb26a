"""Management of host memory: reuse of freed memory, and host copies of tensors on a device.

By default, glibc returns the memory of a large tensor to the system when the tensor is freed, and
the system has to map and zero every page of the next tensor. This takes up to a third of the time
of a training step. `Heap` makes glibc keep freed memory for reuse. That memory fragments over time,
and is returned to the system when it has grown far beyond the need.

To read a tensor on a GPU, the host waits until the GPU has finished all queued work, and the GPU is
then idle until the host has queued more. The content of a batch, however, was on the host before it
was sent. `to_device` therefore attaches the host tensor to its copy on the device, and `on_host`
returns it without waiting.

`shared_zeros` is memory that worker processes have in common.
"""

import ctypes
import math
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4  # from glibc's malloc.h
_ALL = (1 << 31) - 1  # the largest value of these parameters
_VARIABLES = (
    *("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_"),
    *("GLIBC_TUNABLES", "LD_PRELOAD"),
)
_SLACK = 1.5  # the multiple of the need of one pass above which free memory is returned
_LEAST = 256 << 20  # bytes that are not worth returning
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_ATTRIBUTE = "_declutr_on_host"


class Heap:
    """The freed memory of this process; call `settle` whenever activations have been freed."""

    def __init__(self) -> None:
        self._library = _glibc()
        self._keeps = False
        self._trimmed = False
        self._needed = 0  # bytes resident after a pass that began without freed memory to reuse

    def settle(self) -> None:
        """Keep freed memory from now on, and return it to the system if it is too much.

        This does nothing except on Linux with glibc, nor if the user has configured memory
        allocation in the environment.
        """
        if self._library is None:
            return
        if not self._keeps:
            self._keeps = True
            if not self._library.mallopt(_M_MMAP_THRESHOLD, _ALL):
                # Before glibc 2.35, thresholds above 32 MB were refused.
                self._library.mallopt(_M_MMAP_MAX, 0)
            self._library.mallopt(_M_TRIM_THRESHOLD, _ALL)
        resident = _resident()
        if self._trimmed:
            self._needed, self._trimmed = max(self._needed, resident), False
        elif resident > _SLACK * self._needed and resident - self._needed > _LEAST:
            self._library.malloc_trim(0)
            self._trimmed = True


def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc with its default allocator and settings, or `None`."""
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
    """Return the resident memory of this process in bytes, without mapped files."""
    with open("/proc/self/statm", "rb") as file:
        fields = file.read().split()
    return (int(fields[1]) - int(fields[2])) * _PAGE


HEAP = Heap()
"""The freed memory of this process."""


def shared_zeros(*shape: int, dtype: torch.dtype) -> Tensor:
    """Return zeros that forked processes share with this one, without a file in `/dev/shm`.

    Where there is no such folder, or it is full, `Tensor.share_memory_` is an error. Spawned
    processes share them too: torch moves a tensor to `/dev/shm` when it is sent to one.
    """
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def remember(on_device: Tensor, on_host: Tensor) -> Tensor:
    """Attach a host tensor to its copy on a device, and return the copy.

    An in-place change of `on_device` invalidates the host copy, except a change through `.data`,
    which torch does not track. Copies and pickles of `on_device` have no host copy.

    # Parameters

    on_device : a tensor on any device.
    on_host : a tensor on the CPU with the same content, which must not be changed.
    """
    if on_device is not on_host:
        setattr(on_device, _ATTRIBUTE, _Remembered(on_host, on_device))
    return on_device


def on_host(tensor: Tensor) -> Tensor:
    """Return a tensor with the same content on the CPU.

    It is `tensor` itself, or the host copy that `remember` attached. Otherwise the content is
    copied from the device, which is the only case in which the host waits.
    """
    known = known_on_host(tensor)
    return tensor.detach().cpu() if known is None else known


def known_on_host(tensor: Tensor) -> Tensor | None:
    """Return a tensor with the same content on the CPU if the host need not wait for it."""
    return tensor if tensor.device.type == "cpu" else _known(tensor)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device and attach the tensor as host copy (`remember`).

    A copy to a GPU uses page-locked memory, so that the host does not wait for it. A tensor that
    is not on the CPU is moved as by `Tensor.to`.
    """
    if tensor.device.type != "cpu" or device.type == "cpu":
        return tensor.to(device)
    # An expanded tensor has elements that share memory, which could not be written separately.
    if 0 in tensor.stride():
        tensor = tensor.contiguous()
    if device.type == "cuda" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    # In inference mode torch does not count changes of a tensor, which invalidate the host copy.
    with torch.inference_mode(False):
        sent = tensor.to(device, non_blocking=device.type == "cuda")
    return remember(sent, tensor)


def carried(operation: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Apply `operation` to tensors, and attach the result of applying it to their host copies.

    Nothing is attached unless all tensors have host copies. The operation is computed twice, so it
    should be cheap, such as slicing.
    """
    result = operation(*tensors)
    copies = [_known(tensor) for tensor in tensors]
    known = [copy for copy in copies if copy is not None]
    return remember(result, operation(*known)) if len(known) == len(tensors) else result


class Arriving:
    """An asynchronous copy of a tensor from a device to the host.

    # Parameters

    tensor : the tensor to copy; only a copy from a GPU is asynchronous.
    """

    def __init__(self, tensor: Tensor) -> None:
        in_cuda = tensor.device.type == "cuda"
        # torch allocates page-locked memory for a non-blocking copy from a GPU.
        self._tensor = tensor.to("cpu", non_blocking=in_cuda)
        self._arrived = None
        if in_cuda:
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(tensor.device))

    def wait(self) -> Tensor:
        """Wait until the copy is complete, and return the tensor on the host."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._tensor


class _Remembered:
    """A host copy of a tensor, with the number of in-place changes for which it is valid."""

    def __init__(self, copy: Tensor, of: Tensor) -> None:
        self._copy, self._changes = copy, _changes(of)

    def of(self, tensor: Tensor) -> Tensor | None:
        """Return the host copy, or `None` if `tensor` has been changed since."""
        return self._copy if self._changes == _changes(tensor) else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as `None`, because a copied tensor counts its changes from 0."""
        return type(None), ()


def _known(tensor: Tensor) -> Tensor | None:
    remembered = getattr(tensor, _ATTRIBUTE, None)
    return None if remembered is None else remembered.of(tensor)


def _changes(tensor: Tensor) -> int | None:
    """Return the number of in-place changes; `None` in inference mode, which does not count."""
    return None if tensor.is_inference() else tensor._version
