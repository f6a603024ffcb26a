"""Linear layers prepared once for inference on a CPU, as a replacement of `torch.nn.Linear`.

Weights are stored in the memory layout that is best for the processor, and an activation is applied
to the output of a product while it is still in the cache.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from declutr.system.kernel_choices import CHOICES, PLAIN, Ways
from declutr.transformer.architectures import FUSED, activated
from declutr.transformer.training_products import LEAST_WEIGHTS, MOST_WEIGHTS, plain_output

REORDERED = "onednn reordered"

_ROWS = 256  # the number of rows for which a product is measured
_AGREE = 1e-4  # tolerance in float32, as a share of the largest value
_NUMBERS = {"float32": torch.float32, "bfloat16": torch.bfloat16}

Product = Callable[[Tensor], Tensor]
"""A function that maps rows `(r, k)` to rows `(r, n)`."""


class PlainProduct:
    """A linear layer computed by torch's own product, followed by an activation.

    # Parameters

    weight : `(n, k)`, in the dtype of the computation.
    bias : `(n,)` or `None`.
    activation : one of `FUSED`, or `None`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str | None = None) -> None:
        self._weight, self._bias, self._activation = weight, bias, activation

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the output `(r, n)` for rows `(r, k)`."""
        # `linear` itself could be another product here, if it is called within `QuickProducts`.
        output = plain_output(rows.to(self._weight.dtype), self._weight, self._bias)
        return output if self._activation is None else activated(output, self._activation)


class ReorderedProduct:
    """A linear layer computed by oneDNN, with the weight reordered once for its kernel.

    The parameters are those of `PlainProduct`.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: str | None = None) -> None:
        operation, algorithm = ("none", "") if activation is None else FUSED[activation]
        self._weight = _reorder(weight)
        self._bias, self._dtype = bias, weight.dtype
        self._after: tuple[str, list, str] = (operation, [], algorithm)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the output `(r, n)` for rows `(r, k)`."""
        rows = rows.to(self._dtype).contiguous()
        return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, *self._after)

    # Reordered weights cannot be copied or pickled, but encoders that contain them must be. Arrays
    # stand for them: a tensor that nothing else holds is gone before a started process reads it.
    def __getstate__(self) -> dict[str, Any]:
        weight = self._weight.to_dense(self._dtype).contiguous()
        return {**self.__dict__, "_weight": weight.view(torch.uint8).numpy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        weight = torch.tensor(state["_weight"]).view(state["_dtype"])
        self.__dict__.update(state, _weight=_reorder(weight))


def _reorder(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)


def float_product(weight: Tensor, bias: Tensor | None, activation: str | None) -> Product:
    """Return the quickest product for a linear layer on this processor.

    It is torch's own if the alternative does not give the same results up to rounding. The
    parameters are those of `PlainProduct`.
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
    """Return `PLAIN` or `REORDERED`, whichever is quicker for a weight of this shape and dtype.

    # Parameters

    shape : `(n, k)`.
    dtype : `torch.float32` or `torch.bfloat16`.
    activation : one of `FUSED`, or `None`.
    """
    n, k = shape
    if n * k < LEAST_WEIGHTS:
        return PLAIN

    def ways() -> Ways:
        some = min(n, max(1, MOST_WEIGHTS // k))  # number of outputs to measure
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


class PreparedLinear(torch.nn.Module):
    """One or more linear layers on the same input, with concatenated outputs and an activation.

    Until `prepare` is called, the given layers compute the output.

    # Parameters

    layers : linear layers with the same `in_features`.
    activation : one of `FUSED`, or `None`.
    """

    def __init__(self, *layers: torch.nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        self.layers: Any = torch.nn.ModuleList(layers)
        self.activation = activation
        self.in_features = layers[0].in_features
        self.out_features = sum(layer.out_features for layer in layers)
        # A placeholder, because T5 reads `layer.weight.dtype`.
        self.weight = torch.empty(0, dtype=layers[0].weight.dtype)
        self._product: Product | None = None

    def way(self, dtype: str) -> str:
        """Return the name of the product that `prepare` would use; `PLAIN` is torch's own."""
        shape = (self.out_features, self.in_features)
        if dtype == "int8":
            from declutr.transformer import int8_product

            return int8_product.quickest(shape)
        return quickest(shape, _NUMBERS[dtype], self.activation)

    @torch.no_grad()
    def prepare(self, dtype: str) -> None:
        """Compute in a dtype from now on, and free the layers' own weights.

        # Parameters

        dtype : `"float32"`, `"bfloat16"` or `"int8"`.
        """
        weights = [layer.weight.detach().float() for layer in self.layers]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        bias = self._bias()
        self.layers = torch.nn.ModuleList()
        if dtype == "int8":
            from declutr.transformer.int8_product import Int8Product

            self.weight = self.weight.to(torch.int8)
            self._product = Int8Product(weight, bias, self.activation)
            return
        number = _NUMBERS[dtype]
        self.weight = self.weight.to(number)
        bias = None if bias is None else bias.to(number)
        self._product = float_product(weight.to(number), bias, self.activation)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the outputs of all layers, `(..., out_features)`, for `(..., in_features)`."""
        rows = vectors.flatten(0, -2)
        if self._product is None:
            output = torch.cat([linear(rows, at.weight, at.bias) for at in self.layers], dim=-1)
            output = output if self.activation is None else activated(output, self.activation)
        else:
            output = self._product(rows)
        return output.unflatten(0, vectors.shape[:-1])

    def _bias(self) -> Tensor | None:
        if all(layer.bias is None for layer in self.layers):
            return None
        return torch.cat(
            [
                torch.zeros(at.out_features) if at.bias is None else at.bias.detach().float()
                for at in self.layers
            ]
        )
