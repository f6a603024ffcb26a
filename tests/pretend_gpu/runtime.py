"""`torch.cuda` and its like while the pretend GPU is there."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from . import waits
from .device import CUDA, DeviceTensor, PretendDevice
from .generators import device_generator


def _nothing(*args: Any, **kwargs: Any) -> None:
    pass


class _Event:
    """An event: it has always happened, yet to ask for its end is to wait."""

    __init__ = record = wait = _nothing
    query = staticmethod(lambda: True)
    elapsed_time = staticmethod(lambda end: 0.0)

    def synchronize(self) -> None:
        waits.wait("synchronize of an event")


class _Stream:
    """The only stream."""

    device = CUDA
    __init__ = wait_event = wait_stream = _nothing
    query = staticmethod(lambda: True)
    record_event = staticmethod(lambda event=None: event or _Event())

    def synchronize(self) -> None:
        waits.wait("synchronize of a stream")


def _of_torch_cuda() -> dict[str, Any]:
    properties = SimpleNamespace(
        name="pretend GPU", major=9, minor=0, total_memory=1 << 36, multi_processor_count=1
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda including_emulation=True: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing,
        "device": lambda device: contextlib.nullcontext(),
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties,
        "synchronize": lambda device=None: waits.wait("torch.cuda.synchronize"),
        "empty_cache": _nothing,
        "max_memory_allocated": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "reset_max_memory_allocated": _nothing,
        "reset_peak_memory_stats": _nothing,
        "manual_seed": device_generator.manual_seed,
        "manual_seed_all": device_generator.manual_seed,
        "seed_all": device_generator.seed,
        "initial_seed": device_generator.initial_seed,
        "get_rng_state": lambda device=0: device_generator.get_state(),
        "get_rng_state_all": lambda: [device_generator.get_state()],
        "set_rng_state": lambda state, device=0: device_generator.set_state(state),
        "set_rng_state_all": lambda states: device_generator.set_state(states[0]),
        "Event": _Event,
        "Stream": _Stream,
        "current_stream": lambda device=None: _Stream(),
        "default_stream": lambda device=None: _Stream(),
        "stream": lambda stream: contextlib.nullcontext(),
        "is_current_stream_capturing": lambda: False,
        "init": _nothing,
        "_lazy_init": _nothing,
        "_get_device_index": lambda *args, **kwargs: 0,
    }


def _pin_memory(tensor: Tensor, device: Any = None) -> Tensor:
    if tensor.is_pinned():
        return tensor
    pinned = tensor.detach().clone()
    pinned.untyped_storage().pinned = True  # type: ignore[attr-defined]
    return pinned


def _is_pinned(tensor: Tensor, device: Any = None) -> bool:
    # Storages keep their Python objects, and what is set on these.
    return not isinstance(tensor, DeviceTensor) and getattr(
        tensor.untyped_storage(), "pinned", False
    )


def _as_tensor(original: Callable) -> Callable:
    """`torch.as_tensor` looks for the device below where a mode could see it."""

    def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
        if device is None or torch.device(device).type != "cuda":
            return original(data, dtype=dtype, device=device)
        return original(data, dtype=dtype).to(device)

    return as_tensor


def _attention_of_nested(query: Tensor, *args: Any) -> Any:
    """The kernel for nested tensors, which releases until 1.6 attend by, to measure those."""
    from torch.nn.attention import SDPBackend

    half = query.dtype in (torch.float16, torch.bfloat16)
    return SDPBackend.FLASH_ATTENTION if half else SDPBackend.EFFICIENT_ATTENTION


@contextlib.contextmanager
def pretend_gpu() -> Iterator[None]:
    """There is one CUDA device within this context, if the hooks of `build.py` are loaded."""
    import torch._dynamo  # before functions of `torch.cuda` are replaced, which it looks up
    import torch.amp.autocast_mode
    import torch.cuda.amp.common
    from torch.nested._internal import sdpa
    from torch.utils import _foreach_utils

    with contextlib.ExitStack() as stack:

        def replace(place: Any, name: str, value: Any) -> None:
            if hasattr(place, name):
                stack.enter_context(mock.patch.object(place, name, value))

        for name, value in _of_torch_cuda().items():
            replace(torch.cuda, name, value)
        replace(torch.cuda.random, "_lazy_init", lambda: None)
        replace(torch, "as_tensor", _as_tensor(torch.as_tensor))
        replace(Tensor, "pin_memory", _pin_memory)
        replace(Tensor, "is_pinned", _is_pinned)
        # What `torch.load` maps to the device stays on the host, as storages have no device here.
        replace(torch.UntypedStorage, "cuda", lambda storage, *args, **kwargs: storage)
        for module in (torch.amp.autocast_mode, torch.cuda.amp.common):
            replace(module, "is_autocast_available", lambda device: True)
            replace(module, "amp_definitely_not_available", lambda: False)
        if hasattr(torch, "accelerator"):
            replace(torch.accelerator, "is_available", lambda: True)
            replace(torch.accelerator, "current_accelerator", lambda *args, **kwargs: CUDA)
        replace(sdpa, "_select_sdp_backend", _attention_of_nested)
        # Optimizers and the clipping of gradients then take all tensors at once, as on CUDA.
        supported = [*_foreach_utils._foreach_supported_types, DeviceTensor]
        for module in (_foreach_utils, sys.modules["torch.optim.optimizer"]):
            replace(module, "_foreach_supported_types", supported)
        # `torch.tensor(..., device="cuda")` is then a tensor of the host and a copy that is seen.
        torch._C._set_only_lift_cpu_tensors(True)
        stack.callback(torch._C._set_only_lift_cpu_tensors, False)
        stack.enter_context(PretendDevice())
        yield
