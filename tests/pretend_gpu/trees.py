"""Tensors among the arguments of an operator: lists and tuples of them are as deep as it goes.

`torch.utils._pytree` does the same for any nesting, and takes longer than the operators here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def tensors(args: tuple, kwargs: dict[str, Any]) -> list[Tensor]:
    """All tensors among the arguments, in their order."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(part for part in value if isinstance(part, Tensor))
    return found


def mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """The same with each tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(part, change) for part in value)
    return value
