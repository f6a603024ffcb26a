"""The memory of a training step, found by taking it on tensors that have shapes and no contents.

The model, a batch and the optimizer are put on torch's device "meta". What a step would hold is
counted from operation to operation, so that the figure holds for any architecture and recipe. Where
a device has kernels of its own (attention, dropout, autocast), `OfDevice` keeps what those keep.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from declutr.runs.check.device_functions import META, OfDevice
from declutr.transformer import packed_attention
from declutr.transformer.architectures import attends_nearby
from declutr.transformer.unpadding import UnpaddedPass, inputs_of

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

    tried = [(one, one._packs, one._padding_shows) for one in _passes(model)]
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
        enter(OfDevice(device, low_precision).in_place())
        try:
            yield
        finally:
            for one, *before in tried:
                one._packs, one._padding_shows = before


def _passes(model: torch.nn.Module) -> Iterator[UnpaddedPass]:
    for module in model.modules():
        unpadded = getattr(module, "_unpadded", None)
        if isinstance(unpadded, UnpaddedPass):
            yield unpadded


def _can_pack(transformer: torch.nn.Module) -> bool:
    """Return whether a transformer can probably be packed; trying it needs contents."""
    config = getattr(transformer, "config", None)
    attention = getattr(config, "_attn_implementation", "sdpa")
    return (
        "position_ids" in inputs_of(transformer)
        and not attends_nearby(config)
        and attention == "sdpa"
    )


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
