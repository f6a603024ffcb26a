"""Linear layers computed in int8 on a CPU."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from declutr.system.kernel_choices import CHOICES, PLAIN, Ways
from declutr.transformer.architectures import activated
from declutr.transformer.training_products import LEAST_WEIGHTS, MOST_WEIGHTS

PACKED = "onednn packed"
_ROWS = 256  # the number of rows for which a product is measured and its weight packed


class Int8Product:
    """A linear layer quantized to int8, called with rows `(r, k)` and returning `(r, n)`, float32.

    Each output channel of the weight has its own scale. Each row of the input is quantized by its
    own scale and smallest value, so a row does not depend on others in the batch. Sums are exact.

    # Parameters

    weight : `(n, k)`, float32.
    bias : `(n,)` or `None`.
    activation : one of `declutr.transformer.architectures.FUSED`, applied to the output, or
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
        if quickest(weight.shape) == PACKED:
            self._zeros = torch.zeros(len(weight), dtype=torch.int32)
            packed = _pack(self._weight)
            if _is_exact(packed, self._weight, self._zeros):
                self._packed = packed
                self._weight = torch.empty(0, dtype=torch.int8)  # the packed weight replaces it

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the output `(r, n)`, float32, for rows `(r, k)`."""
        whole, scale, least = rows_in_bytes(rows.float())
        if self._packed is not None:
            product = _onednn(whole, self._packed, self._scale, self._zeros)
        else:
            product = _int_mm(whole, self._weight, self._scale)
            least = least + 128 * scale
        # In place, because allocating the output costs more than the arithmetic.
        torch.addcmul(self._bias, product, scale, out=product)
        product.addr_(least.squeeze(1), self._sums)
        if self._activation is not None:
            activated(product, self._activation, out=product)
        return product

    # Packed weights cannot be copied or pickled, but encoders that contain them must be. Arrays
    # stand for them: a tensor that nothing else holds is gone before a started process reads it.
    def __getstate__(self) -> dict[str, Any]:
        packed = None if self._packed is None else self._packed.to_dense().t().numpy()
        return {**self.__dict__, "_packed": packed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        weight = state["_packed"]
        packed = None if weight is None else _pack(torch.tensor(weight))
        self.__dict__.update(state, _packed=packed)


def rows_in_bytes(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize each row of `(r, k)`, float32, to integers from 0 to 255.

    # Returns

    Integers `(r, k)`, uint8, and the scale and the smallest value of each row, both `(r, 1)`. A row
    is `integers * scale + smallest` up to rounding.
    """
    operator = _operator("quantized", "embedding_bag_byte_prepack")
    if operator is not None and rows.size(1):
        fused = operator(rows.contiguous())  # (r, k + 8): the last 8 bytes are scale and offset
        scale, least = fused[:, -8:].contiguous().view(torch.float32).split(1, dim=1)
        return fused[:, :-8].contiguous(), scale, least
    # `aminmax` would be many times slower on a CPU.
    least, most = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)
    scale = (most - least) / 255
    return (rows - least).div_(scale.clamp_min(1e-12)).round_().to(torch.uint8), scale, least


def _is_exact(packed: Tensor, weight: Tensor, zeros: Tensor) -> bool:
    """Return whether a packed product computes the largest possible sums exactly."""
    largest = torch.full_like(weight[:1], 255, dtype=torch.uint8)
    rows = torch.cat([largest, largest * (weight[:1] > 0), largest * (weight[:1] < 0)])
    found = _onednn(rows, packed, torch.ones(len(weight)), zeros)
    expected = rows.double() @ weight.double().t()
    return bool(((found - expected).abs() <= 1e-6 * expected.abs() + 0.5).all())


@cache
def largest_weight() -> int:
    """Return the largest quantized weight for which this processor computes int8 products exactly.

    Processors without VNNI add two products at a time in 16 bits, and sums that overflow saturate
    silently.
    """
    rows = torch.full((4, 64), 127, dtype=torch.int8)
    weight = torch.full((16, 64), 127, dtype=torch.int8)
    exact = (torch._int_mm(rows, weight.t()) == 64 * 127 * 127).all()
    return 127 if bool(exact) else 64


def quickest(shape: tuple[int, ...]) -> str:
    """Return `PLAIN` or `PACKED`, whichever is quicker for a weight of this shape `(n, k)`."""
    n, k = shape
    if n * k < LEAST_WEIGHTS:
        return PLAIN

    def ways() -> Ways:
        some = min(n, max(1, MOST_WEIGHTS // k))  # number of outputs to measure
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
    # The kernel takes signed integers, so 128 is subtracted here; `__call__` corrects for it.
    signed = rows.bitwise_xor(128).view(torch.int8)
    return torch._int_mm(signed, weight.t()).float().mul_(scale)


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.onednn.qlinear_prepack(weight.contiguous(), [_ROWS, weight.size(1)])


def _onednn(rows: Tensor, packed: Tensor, scale: Tensor, zeros: Tensor) -> Tensor:
    weights = packed, scale, zeros, None
    output: Any = (1.0, 0, torch.float32, "none", [], "")
    return torch.ops.onednn.qlinear_pointwise(rows, 1.0, 0, *weights, *output)


@cache
def _operator(library: str, name: str) -> Any:
    """Return an operator of torch by name, or `None` if this build does not have it."""
    return getattr(getattr(torch.ops, library), name, None)
