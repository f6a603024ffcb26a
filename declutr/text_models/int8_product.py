"""Products of linear layers in whole numbers of eight bits, on a CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from declutr.kernel_choices import CHOICES, PLAIN
from declutr.text_models.activations import activated

PACKED = "onednn packed"
ROWS = 256
"""Rows of a block, whose numbers stay in the cache of a core from one step to the next."""

_MEASURED_FROM = 1 << 16  # weights of a layer


class Int8Product:
    """A linear layer in whole numbers: rows `(r, k)` to rows `(r, n)`, float32.

    Each output channel of the weight has a scale of its own; each row of the input a scale and a
    smallest value (so a row does not depend on what else is in a batch). Sums are exact.

    # Parameters

    weight : `(n, k)`, float32.
    bias : `(n,)` or `None`.
    activation : one of `declutr.text_models.activations.FUSED`, applied to what comes out, or
        `None`.
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
        if _way(self._weight) == PACKED:
            self._packed = _pack(self._weight)
            self._zeros = torch.zeros(len(weight), dtype=torch.int32)
            self._weight = self._weight[:0]  # it is in the packed one

    def __call__(self, rows: Tensor) -> Tensor:
        rows = rows.float()
        output = rows.new_empty(len(rows), len(self._bias))
        for some, into in zip(rows.split(ROWS), output.split(ROWS), strict=True):
            self._block(some, into)
        return output

    def _block(self, rows: Tensor, output: Tensor) -> None:
        whole, scale, least = rows_in_bytes(rows)
        if self._packed is not None:
            product = _onednn(whole, self._packed, self._scale, self._zeros)
        else:
            # That takes signed numbers: the middle of the range is zero.
            signed = whole.bitwise_xor_(128).view(torch.int8)
            product = torch._int_mm(signed, self._weight.t()).float().mul_(self._scale)
            least = least + 128 * scale
        torch.addcmul(self._bias, product, scale, out=output)
        output.addr_(least.squeeze(1), self._sums)
        if self._activation is not None:
            activated(output, self._activation, out=output)


def rows_in_bytes(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows `(r, k)` as whole numbers 0 to 255, and scale and smallest value of each `(r, 1)`.

    A row is `whole * scale + least` up to rounding.
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


@cache
def largest_weight() -> int:
    """Return the largest whole number for weights with which products of int8 are right here.

    Processors without VNNI add two products at a time in 16 bits, and what is too large for those
    is cut off without a word.
    """
    for most in (127, 64):
        rows = torch.full((4, 64), 127, dtype=torch.int8)
        weight = torch.full((16, 64), most, dtype=torch.int8)
        sums = torch._int_mm(rows, weight.t())
        if bool((sums == 64 * 127 * most).all()):
            return most
    return 64


def _way(weight: Tensor) -> str:
    if weight.numel() < _MEASURED_FROM or _operator("onednn", "qlinear_pointwise") is None:
        return PLAIN
    n, k = weight.shape

    def ways() -> dict[str, Any]:
        rows = torch.full((ROWS, k), 3, dtype=torch.uint8)
        scale, zeros = torch.ones(n), torch.zeros(n, dtype=torch.int32)
        packed = _pack(weight)
        return {
            PLAIN: lambda: torch._int_mm(rows.view(torch.int8), weight.t()).float().mul_(scale),
            PACKED: lambda: _onednn(rows, packed, scale, zeros),
        }

    return CHOICES.quickest(f"product of int8, {k} to {n}", ways)


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.onednn.qlinear_prepack(weight.contiguous(), [ROWS, weight.size(1)])


def _onednn(rows: Tensor, packed: Tensor, scale: Tensor, zeros: Tensor) -> Tensor:
    return torch.ops.onednn.qlinear_pointwise(
        rows, 1.0, 0, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )


@cache
def _operator(library: str, name: str) -> Any:
    """That operator of torch, or `None` if this build has none."""
    return getattr(getattr(torch.ops, library), name, None)
