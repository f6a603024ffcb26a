"""Integer buffers whose value the host knows as well."""

from __future__ import annotations

from typing import Any

import torch


class HostCount:
    """What a buffer of a module counts, such as the steps that were done.

    The buffer lies on the device of the model, where to read it makes the host wait. It is read
    once at first, and once after the module was given another state; from then on `advance` keeps
    up with what the module does to it.

    # Parameters

    module : the module.
    buffer : the name of its buffer, a scalar.
    """

    def __init__(self, module: torch.nn.Module, buffer: str) -> None:
        self._module, self._buffer = module, buffer
        self._value: int | None = None
        module.register_load_state_dict_post_hook(self._forget)

    @property
    def value(self) -> int:
        """The value of the buffer."""
        if self._value is None:
            self._value = int(getattr(self._module, self._buffer))
        return self._value

    def advance(self) -> None:
        """Count one more, in the buffer too."""
        getattr(self._module, self._buffer).add_(1)
        if self._value is not None:
            self._value += 1

    def _forget(self, *_: Any) -> None:
        self._value = None
