"""Functions of torch on the device "meta" that keep for the backward pass what a device keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

META = torch.device("meta")


class OfDevice:
    """Functions of torch that keep for the backward pass of "meta" what those of a device keep.

    # Parameters

    device : the type of the device, `"cpu"` or `"cuda"`.
    low_precision : whether products are computed in bfloat16 (autocast).
    """

    def __init__(self, device: str, low_precision: bool) -> None:
        self._on_cpu, self._low = device == "cpu", low_precision
        self._weights: dict[int, Tensor] = {}  # autocast keeps the weights it has cast

    def dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """Stand in for `torch.nn.functional.dropout`."""
        if not training or p == 0:
            return input
        if self._on_cpu:  # of which one seed is kept
            return _Same.apply(input)
        return torch.native_dropout(input, p, True)[0]

    def attention(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """Stand in for `torch.nn.functional.scaled_dot_product_attention`."""
        return _Attention.apply(*map(self.cast, (query, key, value)))

    def cast(self, value: Any) -> Any:
        """Return a value as autocast gives it to a product."""
        if not self._low or not isinstance(value, Tensor) or value.dtype != torch.float32:
            return value
        if isinstance(value, torch.nn.Parameter) and value.requires_grad:
            return self._weights.setdefault(id(value), value.to(torch.bfloat16))
        return value.to(torch.bfloat16)

    def product(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a product in bfloat16, if products are computed so."""

        def computed(*args: Any, **kwargs: Any) -> Tensor:
            return function(*map(self.cast, args), **{k: self.cast(v) for k, v in kwargs.items()})

        return computed

    def whole(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Return a function that autocast computes in float32."""

        def computed(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            return function(input.float() if self._low else input, *args, **kwargs)

        return computed

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Return a context in which these are the functions of torch.

        They are patched, as recomputation in the backward pass knows no `TorchFunctionMode`.
        """
        functional = torch.nn.functional
        with ExitStack() as stack:
            enter = stack.enter_context
            enter(mock.patch.object(functional, "dropout", self.dropout))
            for name in ("layer_norm", "softmax", "cross_entropy"):
                own = self.whole(getattr(functional, name))
                enter(mock.patch.object(functional, name, own))
            enter(mock.patch.object(functional, "linear", self.product(functional.linear)))
            for name in ("matmul", "bmm"):
                enter(mock.patch.object(torch, name, self.product(getattr(torch, name))))
            enter(_Unpacked(self.attention))
            yield


class _Unpacked(TorchFunctionMode):
    """A context that replaces the attention of passes that are not packed."""

    def __init__(self, attention: Callable[..., Tensor]) -> None:
        super().__init__()
        self._attention = attention

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention and args[0].device == META:
            func = self._attention
        return func(*args, **(kwargs or {}))


class _Same(torch.autograd.Function):
    """A copy that keeps nothing for the backward pass."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return torch.empty_like(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.empty_like(gradient)


class _Attention(torch.autograd.Function):
    """Attention by a kernel that keeps its inputs, its output and a sum for each query."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = query.new_empty(*query.shape[:-1], value.size(-1))
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, sums)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.empty_like(one) for one in ctx.saved_tensors[:3])
