"""Random numbers of the device: a generator of its own, which `torch.manual_seed` seeds as well."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

device_generator = torch.Generator("cuda")


@contextlib.contextmanager
def drawing(func: Any, kwargs: dict[str, Any], on_device: bool) -> Iterator[None]:
    """Within this context, torch's own generator is that of the device, if this operator draws.

    # Raises

    `RuntimeError` : an explicit generator of another device.
    """
    given = kwargs.get("generator")
    expected = "cuda" if on_device else "cpu"
    if given is not None and given.device.type != expected:
        raise RuntimeError(
            f"Expected a '{expected}' device type for generator but found '{given.device.type}'"
        )
    if not on_device or not _draws(func):
        yield
        return
    generator = device_generator if given is None else given
    if given is not None:
        kwargs["generator"] = None  # kernels of the host take none of the device
    host = torch.default_generator.get_state()
    torch.default_generator.set_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(host)


@cache
def _draws(func: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in func.tags or "attention" in func.name()
