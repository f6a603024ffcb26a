"""Repairs AllenNLP's training modules, and the processes they start, right after their bodies ran.

Each takes the module, tests for the very thing it replaces, and returns whether it changed
anything.
"""

import functools
import importlib
import inspect
import os
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

HOST_MEMORY = "declutr.system.host_memory"
_LARGEST_PINNED = 1 << 26  # bytes; page-locked memory is not given back


def replaces(owner: Any, name: str = "") -> Callable[[Callable[..., Any]], None]:
    """Return a decorator that puts a function in the place of one in `owner`.

    The function is handed the one it replaces, and then the arguments of the call. It is seen with
    the signature of the original, by which AllenNLP builds objects.

    # Parameters

    owner : a module, or a class for its plain methods.
    name : of the one that is replaced; by default that of the function.
    """

    def put(function: Callable[..., Any]) -> None:
        replaced = name or function.__name__
        original = getattr(owner, replaced)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, replaced, replacement)

    return put


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

    @replaces(module)
    def int_to_device(original: Any, device: int | torch.device) -> torch.device:
        if isinstance(device, int) and device >= 0:
            return torch.device("cuda", device)
        return original(device)

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

    @replaces(cls)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        options = dict(inspect.signature(original).bind(self, *args, **kwargs).arguments)
        options.pop("self")
        options.pop("verbose", None)
        super(cls, self).__init__(scheduler(**options))

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


def sent_from_pinned_memory(module: ModuleType) -> bool:
    """Let `move_to_device` send tensors to a GPU from page-locked memory, and let them remember
    what they hold, as those of the data loader "declutr" do.

    AllenNLP copies each from memory that the system may move, and waits until the GPU has done all
    it had to do before. Can go when AllenNLP does not.
    """

    @replaces(module)
    def move_to_device(original: Any, obj: Any, device: Any) -> Any:
        target = module.int_to_device(device)
        if (
            isinstance(obj, module.torch.Tensor)
            and (obj.device.type, target.type) == ("cpu", "cuda")
            and obj.layout == module.torch.strided
            and obj.nbytes <= _LARGEST_PINNED
            and not obj.is_pinned()  # whoever pinned it may fill it anew
        ):
            return importlib.import_module(HOST_MEMORY).to_device(obj, target)
        return original(obj, device)  # which calls this for what it finds inside

    return True


def worker_processes(module: ModuleType) -> bool:
    """Data workers: take the lock from the right context, and let spawned ones bring the bridge.

    AllenNLP makes the progress bar's lock with the *default* start method and hands it to
    processes of the loader's; Python refuses that since 3.11.5. Can go when AllenNLP makes the
    lock with `ctx.RLock()` and no other switch is left.
    """
    plain = module.mp
    guard = threading.RLock()

    def start(original: Callable[..., Any], self: Any, queue: Any, ctx: Any) -> Any:
        with guard:
            module.mp = SimpleNamespace(**{**vars(plain), "RLock": ctx.RLock})  # type: ignore
            try:
                return original(self, queue, _WorkerContext(ctx))
            finally:
                module.mp = plain  # type: ignore[attr-defined]

    for name in ("_start_instance_workers", "_start_batch_workers"):
        replaces(module.MultiProcessDataLoader, name)(start)
    return True


class _WorkerContext:
    """A context of `multiprocessing` whose processes unpickle a function of this package first."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, target: Callable[..., Any], args: tuple = (), **options: Any) -> Any:
        return self._context.Process(target=run_worker, args=(target, *args), **options)


def spawned_training(module: ModuleType) -> bool:
    """Distributed training spawns a function of AllenNLP; hand it one that brings the bridge.

    Can go with the last of the other switches.
    """
    train_worker.__wrapped__ = module._train_worker  # type: ignore[attr-defined]
    module._train_worker = train_worker  # type: ignore[attr-defined]
    return True


# A spawned process unpickles the function it is to run before anything else. A reference to a
# function of AllenNLP would import AllenNLP first, before any plugin; a reference to one of these
# imports this package first, and with it the bridge. (`declutr_bridge.pth` does the same for
# processes that see site-packages; these are for the ones that do not.)


def run_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Call `function`, of a worker of a data loader, with one thread for torch.

    By now its reference was unpickled, with the bridge in place. Threads of its own would take
    processors from training; and a forked worker would wait for ever for those of its parent.
    """
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return function(*args)


def train_worker(*args: Any, **kwargs: Any) -> Any:
    """Call AllenNLP's `_train_worker`, which `spawned_training` keeps as `__wrapped__`."""
    import allennlp.commands.train  # noqa: F401  (its repair sets `__wrapped__` in this process)

    return train_worker.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
