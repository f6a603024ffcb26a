"""Linear layers prepared once for inference on a CPU, in the place of `torch.nn.Linear`."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

from declutr.transformer.linear import float_products
from declutr.transformer.linear.float_products import Product, activated, float_product

_NUMBERS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class PreparedLinear(torch.nn.Module):
    """Linear layers that take the same input, end to end, and an activation.

    It computes as they do until `prepare` is called.

    # Parameters

    layers : of equal `in_features`.
    activation : one of `declutr.transformer.linear.float_products.FUSED`, or `None`.
    """

    def __init__(self, *layers: torch.nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        self.layers: Any = torch.nn.ModuleList(layers)
        self.activation = activation
        self.in_features = layers[0].in_features
        self.out_features = sum(layer.out_features for layer in layers)
        # A placeholder, so that `layer.weight.dtype` works: T5 reads it.
        self.weight = torch.empty(0, dtype=layers[0].weight.dtype)
        self._product: Product | None = None

    def way(self, dtype: str) -> str:
        """Return the name of the product that `prepare` takes; `PLAIN` is torch's own."""
        shape = (self.out_features, self.in_features)
        if dtype == "int8":
            from declutr.transformer.linear import int8_product

            return int8_product.quickest(shape)
        return float_products.quickest(shape, _NUMBERS[dtype], self.activation)

    @torch.no_grad()
    def prepare(self, dtype: str) -> None:
        """Compute in float32, bfloat16 or int8 from now on, without the layers' own weights."""
        weights = [layer.weight.detach().float() for layer in self.layers]
        weight = weights[0] if len(weights) == 1 else torch.cat(weights)
        bias = self._bias()
        self.layers = torch.nn.ModuleList()
        if dtype == "int8":
            from declutr.transformer.linear.int8_product import Int8Product

            self.weight = self.weight.to(torch.int8)
            self._product = Int8Product(weight, bias, self.activation)
            return
        number = _NUMBERS[dtype]
        self.weight = self.weight.to(number)
        bias = None if bias is None else bias.to(number)
        self._product = float_product(weight.to(number), bias, self.activation)

    def forward(self, vectors: Tensor) -> Tensor:
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


class OnSameInput:
    """The output of a layer for its last input, so that query, key and value share one product.

    # Parameters

    layer : of all parts.
    """

    def __init__(self, layer: PreparedLinear) -> None:
        self._layer = layer
        self._last: tuple[weakref.ref, Tensor] | None = None

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return what the layer makes of the vectors; it computes only if they are others."""
        last = self._last  # read once: other threads may set it
        if last is not None and last[0]() is vectors:
            return last[1]
        output = self._layer(vectors)
        self._last = (weakref.ref(vectors, self._forget), output)
        return output

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def _forget(self, gone: weakref.ref) -> None:
        last = self._last
        if last is not None and last[0] is gone:
            self._last = None


class PartOfLinear(torch.nn.Module):
    """One of several layers that are computed together, on the same input.

    # Parameters

    shared : all of them.
    start, length : its columns of what they give.
    """

    def __init__(self, shared: OnSameInput, start: int, length: int) -> None:
        super().__init__()
        self._shared, self._start, self._length = shared, start, length

    def forward(self, vectors: Tensor) -> Tensor:
        return self._shared(vectors).narrow(-1, self._start, self._length)
