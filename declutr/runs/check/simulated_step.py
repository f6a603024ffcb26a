"""The memory of a training step, found by taking it on tensors that have shapes and no contents.

The model, a batch and the optimizer are put on torch's device "meta". What a step would hold is
counted from operation to operation, so that the figure holds for any architecture and recipe. Where
a device has kernels of its own (attention, dropout, autocast), `_OfDevice` keeps what those keep.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from declutr.transformer import packed_attention
from declutr.transformer.unpadding import UnpaddedPass, _inputs_of

META = torch.device("meta")
_aten = torch.ops.aten


class LiveBytes(TorchDispatchMode):
    """A context that counts the bytes of the tensors on the device "meta" that are alive.

    A storage counts from the operation that makes it until its last tensor is gone. A number that
    is read on the host is zero; conditions that are copied there hold.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _aten._local_scalar_dense.default and args[0].device == META:
            return torch.zeros((), dtype=args[0].dtype).item()
        if func is _aten._to_copy.default and args[0].device == META and _leaves_meta(kwargs):
            dtype = kwargs.get("dtype") or args[0].dtype
            return torch.full(args[0].shape, dtype == torch.bool, dtype=dtype)
        result = func(*args, **kwargs)
        self.count(result)
        return result

    def count(self, made: Any) -> None:
        """Count the storages of the tensors in `made` that are not counted yet."""
        if isinstance(made, (list, tuple)):
            for one in made:
                self.count(one)
        if not isinstance(made, Tensor) or made.device != META:
            return
        storage = made.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key not in self._known:
            self._known.add(key)
            weakref.finalize(storage, self._freed, key, size)
            self.now += size
            self.peak = max(self.peak, self.now)

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _leaves_meta(kwargs: dict[str, Any]) -> bool:
    return kwargs.get("device") is not None and torch.device(kwargs["device"]) != META


class _OfDevice:
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


@contextmanager
def without_contents() -> Iterator[None]:
    """Return a context in which the parameters of new modules have shapes and no contents."""
    register = torch.nn.Module.register_parameter

    def registered(self: Any, name: str, param: Any) -> None:
        register(self, name, param)
        if param is not None and param.device != META:
            own = torch.nn.Parameter(param.to(META), requires_grad=param.requires_grad)
            self._parameters[name] = own

    with mock.patch.object(torch.nn.Module, "register_parameter", registered):
        yield


@contextmanager
def _as_on(device: str, low_precision: bool, model: torch.nn.Module) -> Iterator[None]:
    """Return a context in which a model on "meta" takes the ways that it takes on a device."""
    plain_autocast = torch.autocast

    def autocast(kind: str, *args: Any, **kwargs: Any) -> Any:
        if kind == "meta":
            return contextlib.nullcontext()
        return plain_autocast(kind, *args, **kwargs)

    packs = [(one, one._packs) for one in _passes(model)]
    for module in model.modules():
        unpadded = getattr(module, "_unpadded", None)
        if isinstance(unpadded, UnpaddedPass) and unpadded._packs is None:
            unpadded._packs = _can_pack(getattr(module, "encoder", module))
    with ExitStack() as stack:
        enter = stack.enter_context
        enter(mock.patch("torch.autocast", autocast))
        enter(mock.patch("torch.is_autocast_enabled", lambda *kinds: False))
        enter(mock.patch.object(packed_attention, "_WITHOUT_KERNELS", ("cpu", "meta")))
        enter(mock.patch("torch.fx.experimental._config.meta_nonzero_assume_all_nonzero", True))
        enter(_OfDevice(device, low_precision).in_place())
        try:
            yield
        finally:
            for one, before in packs:
                one._packs = before


def _passes(model: torch.nn.Module) -> Iterator[UnpaddedPass]:
    for module in model.modules():
        unpadded = getattr(module, "_unpadded", None)
        if isinstance(unpadded, UnpaddedPass):
            yield unpadded


def _can_pack(transformer: torch.nn.Module) -> bool:
    """Return whether a transformer can probably be packed; trying it needs contents."""
    config = getattr(transformer, "config", None)
    near = any(getattr(config, key, None) for key in ("local_attention", "sliding_window"))
    attention = getattr(config, "_attn_implementation", "sdpa")
    return "position_ids" in _inputs_of(transformer) and not near and attention == "sdpa"


def step_memory(
    model: torch.nn.Module,
    batch: dict[str, Any],
    optimizer: torch.optim.Optimizer,
    device: str,
    low_precision: bool,
    keeps_gradients: bool,
) -> dict[str, int]:
    """Return the bytes that a training step holds.

    # Parameters

    model : the model, on "meta", in training mode.
    batch : a batch on "meta", with its values known on the host.
    optimizer : its optimizer.
    device : the type of the device, `"cpu"` or `"cuda"`.
    low_precision : whether products are computed in bfloat16.
    keeps_gradients : whether gradients of an earlier batch are there during the forward pass.

    # Returns

    `weights`, with buffers; `gradients`; `optimizer`; `activations`, all else at the peak; `peak`.
    """
    live = LiveBytes()
    live.count([*model.parameters(), *model.buffers()])
    weights = live.now
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    with _as_on(device, low_precision, model), live:
        for one in parameters:
            one.grad = torch.empty_like(one)
        gradients = live.now - weights
        optimizer.step()
        state = live.now - weights - gradients
        if not keeps_gradients:
            optimizer.zero_grad(set_to_none=True)
        live.peak = live.now
        model(**batch)["loss"].backward()
        optimizer.step()
    return {
        "weights": weights,
        "gradients": gradients,
        "optimizer": state,
        "activations": max(0, live.peak - weights - gradients - state),
        "peak": live.peak,
    }
