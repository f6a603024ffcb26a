"""Repairs of AllenNLP's training modules, made right after they ran.

Each takes the module, tests for the very thing it replaces, and returns whether it changed
anything.
"""

import functools
import inspect
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from declutr.bridge import children


def cuda_device_numbers(module: ModuleType) -> bool:
    """`torch.device(0)` meant CUDA; since 2.x it is any accelerator, and an error without one.

    AllenNLP compares the device with the CPU to find out that a GPU was asked for that is not
    there. Can go when `int_to_device` says `torch.device("cuda", device)`.
    """
    import torch

    try:
        if torch.device(0).type == "cuda":
            return False
    except RuntimeError:
        pass
    original = module.int_to_device

    @functools.wraps(original)
    def int_to_device(device: int | torch.device) -> torch.device:
        if isinstance(device, int) and device >= 0:
            return torch.device("cuda", device)
        return original(device)

    module.int_to_device = int_to_device  # type: ignore[attr-defined]
    return True


def plateau_verbose(module: ModuleType) -> bool:
    """`ReduceLROnPlateau` lost its argument `verbose` in torch 2.7; AllenNLP always passes it.

    Can go when AllenNLP does not pass it any more.
    """
    import torch

    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau
    if "verbose" in inspect.signature(scheduler).parameters:
        return False
    cls = module.ReduceOnPlateauLearningRateScheduler
    original = cls.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)  # AllenNLP builds objects by the signature
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        options = dict(signature.bind(self, *args, **kwargs).arguments)
        options.pop("self")
        options.pop("verbose", None)
        super(cls, self).__init__(scheduler(**options))

    cls.__init__ = __init__
    return True


def checkpoint_globals(module: ModuleType) -> bool:
    """`torch.load` refuses objects it does not know since 2.6; scheduler states hold numpy scalars.

    They are made known, and nothing else. Can go when AllenNLP's checkpointer makes them known, or
    its schedulers keep plain floats.
    """
    import numpy
    import torch

    add_safe_globals = getattr(torch.serialization, "add_safe_globals", None)
    if add_safe_globals is None:
        return False
    core = getattr(numpy, "_core", None) or numpy.core
    scalar = core.multiarray.scalar
    kinds = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")
    names = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")  # numpy 1 and 2
    known: list[Any] = [numpy.dtype, *(type(numpy.dtype(kind)) for kind in kinds)]
    add_safe_globals(known + [(scalar, name) for name in names])
    return True


def amp_names(module: ModuleType) -> bool:
    """`torch.cuda.amp` is deprecated since 2.4 and warns at every step; say `torch.amp`.

    Can go when AllenNLP uses `torch.amp`.
    """
    import torch

    if not hasattr(getattr(torch, "amp", None), "GradScaler"):
        return False

    def autocast(enabled: bool = True, **options: Any) -> Any:
        return torch.amp.autocast("cuda", enabled=enabled, **options)

    scaler = functools.partial(torch.amp.GradScaler, "cuda")
    module.amp = SimpleNamespace(autocast=autocast, GradScaler=scaler)  # type: ignore[attr-defined]
    return True


def spawned_training(module: ModuleType) -> bool:
    """Distributed training spawns a function of AllenNLP; hand it one that brings the bridge.

    Can go with the last of the other switches.
    """
    children.train_worker.__wrapped__ = module._train_worker  # type: ignore[attr-defined]
    module._train_worker = children.train_worker  # type: ignore[attr-defined]
    return True


def worker_processes(module: ModuleType) -> bool:
    """Data workers: take the lock from the right context, and let spawned ones bring the bridge.

    AllenNLP makes the progress bar's lock with the *default* start method and hands it to
    processes of the loader's; Python refuses that since 3.11.5. Can go when AllenNLP makes the
    lock with `ctx.RLock()` and no other switch is left.
    """
    cls = module.MultiProcessDataLoader
    guard = threading.RLock()
    for name in ("_start_instance_workers", "_start_batch_workers"):
        setattr(cls, name, _with_own_lock(getattr(cls, name), module, guard))
    return True


def _with_own_lock(
    original: Callable[..., Any], module: ModuleType, guard: Any
) -> Callable[..., Any]:
    plain = module.mp

    @functools.wraps(original)
    def start(self: Any, queue: Any, ctx: Any) -> Any:
        with guard:
            module.mp = SimpleNamespace(**{**vars(plain), "RLock": ctx.RLock})  # type: ignore
            try:
                return original(self, queue, _WorkerContext(ctx))
            finally:
                module.mp = plain  # type: ignore[attr-defined]

    return start


class _WorkerContext:
    """A context of `multiprocessing` whose processes unpickle a function of this package first."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, target: Callable[..., Any], args: tuple = (), **options: Any) -> Any:
        return self._context.Process(target=children.run, args=(target, *args), **options)
