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
    is read on the host is zero: it has no content.

    # Parameters

    answers : what the host reads of whether anything, and everything, in a tensor is true.
    """

    def __init__(self, answers: tuple[bool, bool] = (False, True)) -> None:
        super().__init__()
        self._answers = dict(zip((_aten.any, _aten.all), answers, strict=True))
        self._asked: dict[int, bool] = {}
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _aten._local_scalar_dense.default and args[0].device == META:
            read = self._asked.get(args[0].untyped_storage()._cdata, False)
            return torch.full((), read, dtype=args[0].dtype).item()
        if func is _aten._to_copy.default and args[0].device == META and _leaves_meta(kwargs):
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        result = func(*args, **kwargs)
        self.count(result)
        if getattr(func, "overloadpacket", None) in self._answers and result.device == META:
            self._asked[result.untyped_storage()._cdata] = self._answers[func.overloadpacket]
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
        self._asked.pop(key, None)
        self.now -= size


def _leaves_meta(kwargs: dict[str, Any]) -> bool:
    return kwargs.get("device") is not None and torch.device(kwargs["device"]) != META


class _OfDevice(TorchFunctionMode):
    """A context in which tensors on "meta" are kept for the backward pass as a device would.

    # Parameters

    device : the type of the device, `"cpu"` or `"cuda"`.
    low_precision : whether products are computed in bfloat16 (autocast).
    """

    def __init__(self, device: str, low_precision: bool) -> None:
        super().__init__()
        self._on_cpu, self._low = device == "cpu", low_precision
        self._weights: dict[int, Tensor] = {}  # autocast keeps the weights it has cast

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        of_meta = bool(args) and isinstance(args[0], Tensor) and args[0].device == META
        if func is torch.is_autocast_enabled:
            return False
        if not of_meta:
            return func(*args, **kwargs)
        if func is torch.nn.functional.dropout:
            return self._drop(*args, **kwargs)
        if func is torch.nn.functional.scaled_dot_product_attention:
            return _Attention.apply(*self._cast(*args[:3]))
        if self._low:
            if func in _LOW:
                return func(*self._cast(*args), **dict(zip(kwargs, self._cast(*kwargs.values()))))
            if func in _HIGH:
                return func(args[0].float(), *args[1:], **kwargs)
        return func(*args, **kwargs)

    def _drop(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False):
        if not training or p == 0:
            return input
        if self._on_cpu:  # of which one seed is kept
            return _Same.apply(input)
        return torch.native_dropout(input, p, True)[0]

    def _cast(self, *values: Any) -> Iterator[Any]:
        for value in values:
            if not self._low or not isinstance(value, Tensor) or value.dtype != torch.float32:
                yield value
            elif isinstance(value, torch.nn.Parameter) and value.requires_grad:
                yield self._weights.setdefault(id(value), value.to(torch.bfloat16))
            else:
                yield value.to(torch.bfloat16)


_LOW: tuple[Callable[..., Any], ...] = (
    torch.nn.functional.linear,
    torch.matmul,
    torch.bmm,
    torch.mm,
    Tensor.matmul,
    Tensor.__matmul__,
)
_HIGH = (
    torch.nn.functional.layer_norm,
    torch.nn.functional.softmax,
    torch.nn.functional.cross_entropy,
)


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
        enter(_OfDevice(device, low_precision))
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
    for answers in _ANSWERS[:-1]:
        live = LiveBytes(answers)
        try:
            with _as_on(device, low_precision, model):
                return _counted(model, batch, optimizer, live, keeps_gradients)
        except Exception:  # a check of values, which has no values
            optimizer.zero_grad(set_to_none=True)
            optimizer.state.clear()
    with _as_on(device, low_precision, model):
        return _counted(model, batch, optimizer, LiveBytes(_ANSWERS[-1]), keeps_gradients)


# Models check values in ways of their own: that any is right, or that none is wrong.
_ANSWERS = ((False, True), (True, True), (True, False), (False, False))


def _counted(
    model: torch.nn.Module,
    batch: dict[str, Any],
    optimizer: torch.optim.Optimizer,
    live: LiveBytes,
    keeps_gradients: bool,
) -> dict[str, int]:
    live.count([*model.parameters(), *model.buffers()])
    weights = live.now
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    with live:
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
