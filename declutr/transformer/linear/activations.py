"""Activations that a product can apply to what it gives, before that leaves the cache."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu

FUSED = {"gelu": ("gelu", "none"), "gelu tanh": ("gelu", "tanh"), "relu": ("relu", "")}
"""What oneDNN calls each: the name of the operation and of its algorithm."""

_GELUS = {"none": "gelu", "tanh": "gelu tanh"}


def name_of(activation: Any) -> str | None:
    """Return which of `FUSED` a module or function is, or `None` if it is none of them."""
    if isinstance(activation, torch.nn.ReLU):
        return "relu"
    if isinstance(activation, torch.nn.GELU):
        return _GELUS.get(activation.approximate)
    # transformers wraps the function, by a class whose name depends on the release.
    inside = getattr(activation, "act", activation)
    if inside is gelu:
        return "gelu"
    if isinstance(inside, functools.partial) and inside.func is gelu and not inside.args:
        return _GELUS.get(inside.keywords.get("approximate", "none"))
    return None


def activated(vectors: Tensor, name: str, out: Tensor | None = None) -> Tensor:
    """Apply one of `FUSED` by torch's own function, into `out` if that is given."""
    if name == "relu":
        return torch.relu(vectors) if out is None else out.copy_(vectors).relu_()
    algorithm = FUSED[name][1]
    if out is None:
        return gelu(vectors, approximate=algorithm)
    return torch.ops.aten.gelu.out(vectors, approximate=algorithm, out=out)
