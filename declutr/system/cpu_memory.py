"""Memory of tensors on a CPU, kept from one training step to the next.

Out of the box, glibc gives the memory of a large tensor back to the system as soon as the tensor is
gone, and the system has to hand out every page of the next one, zeroed. In a training step that
takes up to a third of the time. Kept, that memory is reused, but splits into pieces in time that
fit no tensor; when it has grown by that, it is given back once.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_ALL = (1 << 31) - 1  # the largest value these take
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
_SLACK = 1.5  # times what one pass needs, before free memory is given back
_LEAST = 256 << 20  # bytes that are not worth giving back
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


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
"""That of this process."""
