"""Losses are computed in float32 at least, whatever surrounds them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _lifted(value: Any) -> Any:
    """Floating tensors narrower than float32 as float32, everything else as it is."""
    narrow = isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize < 4
    return value.float() if narrow else value


def full_precision(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """A loss that ignores autocast and sees bfloat16 and float16 arguments as float32.

    Similarities in bfloat16 have three digits, which a temperature of 0.05 multiplies by twenty.
    """

    @wraps(function)
    def computed(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        values = [*args, *kwargs.values()]
        device = next((v.device.type for v in values if isinstance(v, torch.Tensor)), "cpu")
        with torch.autocast(device, enabled=False):
            lifted: Any = [_lifted(value) for value in args]
            named: Any = {name: _lifted(value) for name, value in kwargs.items()}
            return function(*lifted, **named)

    return computed
