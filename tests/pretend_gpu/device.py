"""Tensors that say `cuda:0`, and hold their numbers in the memory of the host."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import strictness, waits
from .generators import drawing
from .packed_attention_kernels import PACKED_ATTENTION
from .padded_attention_kernels import PADDED_ATTENTION
from .recurrent_kernels import RECURRENT
from .trees import mapped, tensors

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")
_KERNELS = PACKED_ATTENTION | PADDED_ATTENTION | RECURRENT  # that a build of torch for CPUs lacks


class DeviceTensor(Tensor):
    """A tensor on the pretend GPU. Autograd, autocast and modules take it for one on CUDA.

    # Parameters

    on_host : the numbers.
    """

    _on_host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, on_host: Tensor) -> DeviceTensor:
        places = {"strides": on_host.stride(), "storage_offset": on_host.storage_offset()}
        kind = {"dtype": on_host.dtype, "layout": on_host.layout, "device": CUDA}
        tensor = Tensor._make_wrapper_subclass(cls, on_host.shape, **places, **kind)
        tensor._on_host = on_host
        return tensor

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not all(issubclass(kind, (DeviceTensor, torch.nn.Parameter)) for kind in types):
            return NotImplemented
        return run(func, args, kwargs or {})

    # That these exist makes `Module.to` keep the parameter, and change what it is.
    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["_on_host"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *meta: Any) -> DeviceTensor:
        return DeviceTensor(inner["_on_host"])

    def __repr__(self, **options: Any) -> str:
        waits.wait("repr")
        return f"{self._on_host!r} on {self.device}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved as a tensor of the host: `torch.load` of what trained here needs no GPU."""
        waits.wait("torch.save")
        return self._on_host.detach().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceTensor:
        if id(self) not in memo:
            copied = DeviceTensor(self._on_host.clone())
            if isinstance(self, torch.nn.Parameter):
                copied = torch.nn.Parameter(copied, self.requires_grad)
            memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return memo[id(self)]

    def tolist(self) -> Any:
        waits.wait("tolist")
        return self._on_host.tolist()

    def numpy(self, **options: Any) -> Any:
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    def new_tensor(self, data: Any, **options: Any) -> Tensor:  # type: ignore[override]
        options = {"dtype": self.dtype, "device": self.device} | options
        return torch.tensor(data, **options)

    def pin_memory(self, *device: Any) -> Tensor:  # type: ignore[override]
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")


class PretendDevice(TorchDispatchMode):
    """Sees what makes a tensor on `cuda` where no argument is one: factories, and copies to it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would ask its compiler at each operator, which takes long

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(not issubclass(kind, (DeviceTensor, torch.nn.Parameter)) for kind in types):
            return func(*args, **kwargs)  # nested tensors and others that hold some of ours
        asked = any(
            isinstance(value, torch.device) and value.type == "cuda"
            for value in (*args, *kwargs.values())
        )
        if asked or any(isinstance(tensor, DeviceTensor) for tensor in tensors(args, kwargs)):
            return run(func, args, kwargs)
        return func(*args, **kwargs)


def run(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """One operator on the device: checked, recorded, and computed on the host."""
    if func.namespace not in ("aten", "prim", "prims"):
        return _run_custom(func, args, kwargs)
    if torch.is_inference_mode_enabled() and _is_composite(func):
        with PretendDevice():  # elsewhere torch has taken it apart before
            return func.decompose(*args, **kwargs)
    given = tensors(args, kwargs)
    ours = {id(t._on_host): t for t in given if isinstance(t, DeviceTensor)}
    strictness.check(func, args, given, DeviceTensor)
    on_device = _where_to(func, args, kwargs, bool(ours))
    if ours:
        strictness.record_wait(func, args, kwargs, DeviceTensor)
    if ours or on_device:
        strictness.record_launch(func)
    inner_args = mapped(args, _on_host)
    inner_kwargs = {name: mapped(value, _on_host) for name, value in kwargs.items()}
    if inner_kwargs.get("device") is not None and on_device:
        inner_kwargs["device"] = CPU
    inner_kwargs.pop("pin_memory", None)
    with drawing(func, inner_kwargs, on_device):
        out = _KERNELS.get(func, func)(*inner_args, **inner_kwargs)
    if not on_device:
        return out

    # A view of a tensor from outside of `torch.inference_mode` shares its version counter.
    inference = torch.is_inference_mode_enabled() and (not func.is_view or args[0].is_inference())

    def wrapped(tensor: Tensor) -> Tensor:
        same = ours.get(id(tensor))
        if same is None:
            with torch.inference_mode(inference):
                return DeviceTensor(tensor)
        if same.shape != tensor.shape or same.stride() != tensor.stride():
            raise NotImplementedError(f"The pretend GPU cannot change a shape in place: {func}.")
        return same

    if func in strictness.HOST_OUTPUTS:  # of several, these stay on the host
        hosts = strictness.HOST_OUTPUTS[func]
        return tuple(t if n in hosts else wrapped(t) for n, t in enumerate(out))
    return mapped(out, wrapped)


@cache
def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


def _on_host(tensor: Tensor) -> Tensor:
    return tensor._on_host if isinstance(tensor, DeviceTensor) else tensor


def _where_to(func: Any, args: tuple, kwargs: dict[str, Any], of_ours: bool) -> bool:
    """Whether the result lies on the device; copies between it and the host are recorded here."""
    to = kwargs.get("device")
    on_device = of_ours if to is None else torch.device(to).type == "cuda"
    if func is aten._to_copy.default and on_device != isinstance(args[0], DeviceTensor):
        strictness.record_copy(args[0], on_device, bool(kwargs.get("non_blocking")))
    elif func is aten.copy_.default:
        to_device, from_device = (isinstance(t, DeviceTensor) for t in args[:2])
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        if to_device != from_device:
            host = args[1] if to_device else args[0]
            strictness.record_copy(host, to_device, non_blocking)
        return to_device
    return on_device


def _run_custom(func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """An operator of somebody: its kernel for CUDA, given tensors of the device."""
    key = torch.DispatchKey.CUDA if hasattr(torch, "DispatchKey") else torch._C.DispatchKey.CUDA
    name = func.name()
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if not any(has(name, kind) for kind in ("CUDA", "CompositeExplicitAutograd")):
        raise NotImplementedError(
            f"Could not run '{name}' with arguments from the 'CUDA' backend: it has no such kernel."
        )
    if not has(name, "CUDA"):
        key = torch._C.DispatchKey.CompositeExplicitAutograd
    with PretendDevice():
        return func._op_dk(key, *args, **kwargs)
