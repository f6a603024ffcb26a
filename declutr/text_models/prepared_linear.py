"""Linear layers prepared once for inference on a CPU, in the place of `torch.nn.Linear`."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch.nn.functional import linear

from declutr.kernel_choices import PLAIN
from declutr.text_models.activations import activated
from declutr.text_models.float_products import Product, float_product, quickest
from declutr.text_models.int8_product import Int8Product

_ROWS = 256  # of a feed-forward block, whose wide vectors then stay in the cache of a core


class PreparedLinear(torch.nn.Module):
    """Linear layers that take the same input, end to end, and an activation.

    It computes as they do until `prepare` is called.

    # Parameters

    layers : of equal `in_features`.
    activation : one of `declutr.text_models.activations.FUSED`, or `None`.
    """

    def __init__(self, *layers: torch.nn.Linear, activation: str | None = None) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.activation = activation
        self.in_features = layers[0].in_features
        self.out_features = sum(layer.out_features for layer in layers)
        self._product: Product | None = None

    def gains(self) -> bool:
        """Whether this processor is quicker with reordered weights in float32."""
        shape = (self.out_features, self.in_features)
        return quickest(shape, torch.float32, self.activation) != PLAIN

    @torch.no_grad()
    def prepare(self, dtype: str) -> None:
        """Compute in float32, bfloat16 or int8 from now on, without the layers' own weights."""
        weight, bias = self._weight(), self._bias()
        self.layers = torch.nn.ModuleList()
        if dtype == "int8":
            self._product = Int8Product(weight, bias, self.activation)
            return
        number = torch.bfloat16 if dtype == "bfloat16" else torch.float32
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

    def _weight(self) -> Tensor:
        weights = [layer.weight.detach().float() for layer in self.layers]
        return weights[0] if len(weights) == 1 else torch.cat(weights)

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
    """What a layer made of its last input, for those who each want a part of it.

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


class FeedForward(torch.nn.Module):
    """Two linear layers and the activation between them, for some hundred rows at a time.

    # Parameters

    first, second : the layers.
    activation : between them, if it is no part of the first.
    """

    def __init__(
        self, first: PreparedLinear, second: PreparedLinear, activation: torch.nn.Module | None
    ) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.activation = torch.nn.Identity() if activation is None else activation

    def forward(self, vectors: Tensor) -> Tensor:
        rows = vectors.flatten(0, -2)
        parts = [self.second(self.activation(self.first(some))) for some in rows.split(_ROWS)]
        output = parts[0] if len(parts) == 1 else torch.cat(parts)
        return output.unflatten(0, vectors.shape[:-1])

