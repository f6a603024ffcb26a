"""Whole numbers of a checkpoint that the host knows without asking the device."""

from __future__ import annotations

from typing import Any

import torch


class HostCount:
    """What a buffer of a module counts, such as the steps that were done.

    A buffer lies on the device of the model, where to read it makes the host wait. It is read once
    at first, and once after the module was given another state; from then on `advance` keeps up
    with what the module does to it. `count` is the sum over the buffer: of flags, how many are set.

    # Parameters

    module : the module.
    buffer : the name of its buffer.
    """

    def __init__(self, module: torch.nn.Module, buffer: str) -> None:
        self._module, self._buffer = module, buffer
        self._count: int | None = None
        module.register_load_state_dict_post_hook(self._forget)

    def _forget(self, *_: Any) -> None:
        self._count = None

    @property
    def count(self) -> int:
        """What the buffer says."""
        if self._count is None:
            self._count = int(getattr(self._module, self._buffer).sum())
        return self._count

    def advance(self, by: int = 1, most: int | None = None) -> None:
        """Count on, as was done in the buffer; up to `most`."""
        if self._count is not None:
            self._count = self._count + by if most is None else min(self._count + by, most)
