"""Products of linear layers in floating point, with weights in the order that a CPU likes best.

And the activations that a product can apply to what it gives, before that leaves the cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu

from declutr.system.kernel_choices import CHOICES, PLAIN, Ways
from declutr.transformer.linear.training_products import LEAST_WEIGHTS, MOST_WEIGHTS, plain_output

FUSED = {"gelu": ("gelu", "none"), "gelu tanh": ("gelu", "tanh"), "relu": ("relu", "")}
"""What oneDNN calls each activation: the name of the operation and of its algorithm."""

REORDERED = "onednn reordered"

_GELUS = {"none": "gelu", "tanh": "gelu tanh"}
_ROWS = 256  # that a product is measured with
_AGREE = 1e-4  # of the largest value, in float32

Product = Callable[[Tensor], Tensor]
"""Rows `(r, k)` to rows `(r, n)`."""


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


class PlainProduct:
    """A linear layer by torch's own product, with the activation after it.

    # Parameters

    weight : `(n, k)` in the dtype that is computed in.
    bias : `(n,)` or `None`.
    activation : one of `FUSED`, or `None`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str | None = None) -> None:
        self._weight, self._bias, self._activation = weight, bias, activation

    def __call__(self, rows: Tensor) -> Tensor:
        # What torch computes for `linear`, which may be another product within `QuickProducts`.
        output = plain_output(rows.to(self._weight.dtype), self._weight, self._bias)
        return output if self._activation is None else activated(output, self._activation)


class ReorderedProduct:
    """oneDNN's product, whose weight is put in its order once; parameters as of `PlainProduct`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str | None = None) -> None:
        operation, algorithm = ("none", "") if activation is None else FUSED[activation]
        self._weight = _reorder(weight)
        self._bias, self._dtype = bias, weight.dtype
        self._after: tuple[str, list, str] = (operation, [], algorithm)

    def __call__(self, rows: Tensor) -> Tensor:
        rows = rows.to(self._dtype).contiguous()
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, *self._after)

    # Reordered weights cannot be copied or pickled, encoders can.
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_weight": self._weight.to_dense(self._dtype)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _weight=_reorder(state["_weight"]))


def _reorder(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)


def float_product(weight: Tensor, bias: Tensor | None, activation: str | None) -> Product:
    """Return the quickest product on this processor; parameters as of `PlainProduct`.

    If the other product does not give the same as torch's, it is torch's.
    """
    plain = PlainProduct(weight, bias, activation)
    if quickest(weight.shape, weight.dtype, activation) == PLAIN:
        return plain
    product = ReorderedProduct(weight, bias, activation)
    rows = torch.linspace(-1, 1, 8 * weight.size(1)).view(8, -1)
    expected, got = plain(rows).float(), product(rows).float()
    tolerance = max(_AGREE, 4 * torch.finfo(weight.dtype).eps) * float(expected.abs().max())
    return product if float((got - expected).abs().max()) <= tolerance else plain


def quickest(shape: tuple[int, ...], dtype: torch.dtype, activation: str | None) -> str:
    """Return `PLAIN` or `REORDERED`, whichever is quicker for a weight of this shape and dtype."""
    n, k = shape
    if n * k < LEAST_WEIGHTS:
        return PLAIN

    def ways() -> Ways:
        some = min(n, max(1, MOST_WEIGHTS // k))  # outputs
        rows = torch.full((_ROWS, k), 0.5, dtype=dtype, device="cpu")
        like = torch.full((some, k), 0.01, dtype=dtype, device="cpu")
        bias = torch.zeros(some, dtype=dtype, device="cpu")
        plain = PlainProduct(like, bias, activation)
        ways: Ways = {PLAIN: lambda: plain(rows)}
        try:
            reordered = ReorderedProduct(like, bias, activation)
        except (RuntimeError, AttributeError, NotImplementedError):  # not in this build of torch
            return ways
        return {**ways, REORDERED: lambda: reordered(rows)}

    named = str(dtype).removeprefix("torch.")
    after = "" if activation is None else f" with {activation}"
    return CHOICES.quickest(f"{named} linear layer, {k} to {n}{after}, prepared", ways)
