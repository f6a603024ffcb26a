"""Linear layers in int8, on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor


class Int8Linear(torch.nn.Module):
    """A linear layer whose products are of whole numbers.

    Each output channel of the weight has a scale of its own; each row of the input a scale and a
    middle, those of its smallest and largest value (so a row does not depend on what else is in a
    batch). Sums are exact, in int32.

    # Parameters

    linear : the layer in float32, `(…, k)` -> `(…, n)`.
    """

    weight: Tensor
    scale: Tensor
    sums: Tensor

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1, keepdim=True).clamp_min_(1e-12) / 127
        whole = (weight / scale).round_()
        self.register_buffer("weight", whole.to(torch.int8))  # (n, k)
        self.register_buffer("scale", scale.squeeze(1))  # (n,)
        self.register_buffer("sums", (whole * scale).sum(dim=1))  # (n,)
        self.bias = linear.bias
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def forward(self, vectors: Tensor) -> Tensor:
        rows = vectors.flatten(0, -2).float()
        # Not `aminmax`, which is many times slower on a CPU.
        low, high = rows.amin(dim=1, keepdim=True), rows.amax(dim=1, keepdim=True)
        scale = (high - low).clamp_min_(1e-12) / 255
        middle = low + 128 * scale
        whole = (rows - middle).div_(scale).round_().to(torch.int8)
        product = torch._int_mm(whole, self.weight.t()).float().mul_(scale).mul_(self.scale)
        product.addr_(middle.squeeze(1), self.sums)
        if self.bias is not None:
            product += self.bias
        return product.unflatten(0, vectors.shape[:-1])


def quantize_linear_layers(module: torch.nn.Module) -> None:
    """Replace every linear layer inside by one of int8."""
    for name, child in module.named_children():
        if type(child) is torch.nn.Linear:
            setattr(module, name, Int8Linear(child))
        else:
            quantize_linear_layers(child)
