"""Products of linear layers in whole numbers of eight bits, on a CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from declutr.system.kernel_choices import CHOICES, PLAIN, Ways
from declutr.transformer.architectures import activated
from declutr.transformer.training_products import LEAST_WEIGHTS, MOST_WEIGHTS

PACKED = "onednn packed"
_ROWS = 256  # that a product is measured with, and its weight packed for


class Int8Product:
    """A linear layer in whole numbers: rows `(r, k)` to rows `(r, n)`, float32.

    Each output channel of the weight has a scale of its own; each row of the input a scale and a
    smallest value (so a row does not depend on what else is in a batch). Sums are exact.

    # Parameters

    weight : `(n, k)`, float32.
    bias : `(n,)` or `None`.
    activation : one of `declutr.transformer.architectures.FUSED`, applied to what comes
        out, or `None`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str | None = None) -> None:
        weight = weight.detach().float()
        most = largest_weight()
        scale = weight.abs().amax(dim=1, keepdim=True).clamp_min_(1e-12) / most
        whole = (weight / scale).round_()
        self._sums = (whole * scale).sum(dim=1)  # (n,)
        self._scale = scale.squeeze(1)  # (n,)
        self._weight = whole.to(torch.int8)  # (n, k)
        self._bias = torch.zeros(len(weight)) if bias is None else bias.detach().float()
        self._activation = activation
        self._packed: Tensor | None = None
        if quickest(weight.shape) == PACKED:
            self._zeros = torch.zeros(len(weight), dtype=torch.int32)
            packed = _pack(self._weight)
            if _is_exact(packed, self._weight, self._zeros):
                self._packed = packed
                self._weight = torch.empty(0, dtype=torch.int8)  # it is in the packed one

    def __call__(self, rows: Tensor) -> Tensor:
        whole, scale, least = rows_in_bytes(rows.float())
        if self._packed is not None:
            product = _onednn(whole, self._packed, self._scale, self._zeros)
        else:
            product = _int_mm(whole, self._weight, self._scale)
            least = least + 128 * scale
        # In place: allocating the output costs more than the arithmetic.
        torch.addcmul(self._bias, product, scale, out=product)
        product.addr_(least.squeeze(1), self._sums)
        if self._activation is not None:
            activated(product, self._activation, out=product)
        return product

    # Packed weights cannot be copied or pickled, encoders can.
    def __getstate__(self) -> dict[str, Any]:
        packed = None if self._packed is None else self._packed.to_dense().t()
        return {**self.__dict__, "_packed": packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        weight = state["_packed"]
        self.__dict__.update(state, _packed=None if weight is None else _pack(weight))


def rows_in_bytes(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows `(r, k)` as whole numbers 0 to 255, with the scale and smallest value of each.

    A row is `whole * scale + least` up to rounding; both are `(r, 1)`.
    """
    operator = _operator("quantized", "embedding_bag_byte_prepack")
    if operator is not None and rows.size(1):
        fused = operator(rows.contiguous())  # (r, k + 8): a scale and an offset stand at the end
        scale, least = fused[:, -8:].contiguous().view(torch.float32).split(1, dim=1)
        return fused[:, :-8].contiguous(), scale, least
    # Not `aminmax`, which is many times slower on a CPU.
    least, most = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)
    scale = (most - least) / 255
    return (rows - least).div_(scale.clamp_min(1e-12)).round_().to(torch.uint8), scale, least


def _is_exact(packed: Tensor, weight: Tensor, zeros: Tensor) -> bool:
    """Whether the largest sums that there can be come out as they are."""
    largest = torch.full_like(weight[:1], 255, dtype=torch.uint8)
    rows = torch.cat([largest, largest * (weight[:1] > 0), largest * (weight[:1] < 0)])
    found = _onednn(rows, packed, torch.ones(len(weight)), zeros)
    expected = rows.double() @ weight.double().t()
    return bool(((found - expected).abs() <= 1e-6 * expected.abs() + 0.5).all())


@cache
def largest_weight() -> int:
    """Return the largest whole number for weights with which products of int8 are right here.

    Processors without VNNI add two products at a time in 16 bits, and sums that overflow those
    saturate silently.
    """
    rows = torch.full((4, 64), 127, dtype=torch.int8)
    weight = torch.full((16, 64), 127, dtype=torch.int8)
    exact = (torch._int_mm(rows, weight.t()) == 64 * 127 * 127).all()
    return 127 if bool(exact) else 64


def quickest(shape: tuple[int, ...]) -> str:
    """Return `PLAIN` or `PACKED`, whichever is quicker for a weight `(n, k)` of this shape."""
    n, k = shape
    if n * k < LEAST_WEIGHTS:
        return PLAIN

    def ways() -> Ways:
        some = min(n, max(1, MOST_WEIGHTS // k))  # outputs
        rows = torch.full((_ROWS, k), 3, dtype=torch.uint8, device="cpu")
        weight = torch.full((some, k), 3, dtype=torch.int8, device="cpu")
        scale = torch.ones(some, dtype=torch.float32, device="cpu")
        zeros = torch.zeros(some, dtype=torch.int32, device="cpu")
        ways: Ways = {PLAIN: lambda: _int_mm(rows, weight, scale)}
        try:
            packed = _pack(weight)
        except (RuntimeError, AttributeError, NotImplementedError):  # not in this build of torch
            return ways
        return {**ways, PACKED: lambda: _onednn(rows, packed, scale, zeros)}

    return CHOICES.quickest(f"int8 linear layer, {k} to {n}, prepared", ways)


def _int_mm(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    # As signed numbers, less 128; `__call__` adds those back.
    signed = rows.bitwise_xor(128).view(torch.int8)
    return torch._int_mm(signed, weight.t()).float().mul_(scale)


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.onednn.qlinear_prepack(weight.contiguous(), [_ROWS, weight.size(1)])


def _onednn(rows: Tensor, packed: Tensor, scale: Tensor, zeros: Tensor) -> Tensor:
    return torch.ops.onednn.qlinear_pointwise(
        rows, 1.0, 0, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )


@cache
def _operator(library: str, name: str) -> Any:
    """That operator of torch, or `None` if this build has none."""
    return getattr(getattr(torch.ops, library), name, None)
