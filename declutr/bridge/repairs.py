"""Repairs of AllenNLP's training modules, and of the processes that they start.

Each function takes a module right after its body ran. Where it depends on a release whether the
repair is needed, the function tests that, and returns what it found.
"""

import functools
import importlib
import inspect
import multiprocessing
import os
import pkgutil
import secrets
import threading
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

# Of a later room, and imported where they are needed.
BEGUN_PROCESSES = "declutr.system.begun_processes"
DISTRIBUTED = "declutr.system.distributed"
HOST_MEMORY = "declutr.system.host_memory"
NEAREST = "declutr.system.nearest"
_LARGEST_PINNED = 1 << 26  # bytes; a limit, because torch does not free page-locked memory


def replaces(owner: Any, name: str = "") -> Callable[[Callable[..., Any]], None]:
    """Return a decorator that replaces a function of a module, or a method of a class.

    The decorated function gets the original as its first argument, followed by the arguments of the
    call: those of a class method begin with the class. It keeps the signature of the original,
    because AllenNLP builds objects by it.

    # Parameters

    owner : a module, or a class for its plain and class methods.
    name : the name of the function to replace; by default the name of the decorated function.
    """

    def put(function: Callable[..., Any]) -> None:
        replaced = name or function.__name__
        found = vars(owner).get(replaced)
        of_class = isinstance(found, classmethod)
        original = found.__func__ if isinstance(found, classmethod) else getattr(owner, replaced)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, replaced, classmethod(replacement) if of_class else replacement)

    return put


def cuda_device_numbers(module: ModuleType) -> bool:
    """Let `int_to_device` return a CUDA device for a number.

    `torch.device(0)` meant CUDA before torch 2; now it is any accelerator, and an error without
    one. AllenNLP compares the device with the CPU to report a GPU that is missing. Can be removed
    when `int_to_device` uses `torch.device("cuda", device)`.
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


def device_numbers(module: ModuleType) -> None:
    """Refuse a trainer's `cuda_device` that is no number, which ended in a comparison with 0.

    Can be removed when the trainer says what it expects.
    """

    @replaces(module.GradientDescentTrainer)
    def from_partial_objects(original: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(original).bind(cls, *args, **kwargs).arguments
        require_number(given.get("cuda_device"), module.ConfigurationError)
        return original(cls, *args, **kwargs)


def require_number(device: Any, error: type[Exception]) -> None:
    """Raise an error if a device of a configuration is a name, or several devices."""
    if isinstance(device, (str, list, tuple)):
        raise error(
            f"cuda_device is {device!r}, expected a number: that of a GPU, from 0, or -1 for the "
            "CPU. Several are distributed.cuda_devices."
        )


def own_submodules(module: ModuleType) -> None:
    """Let AllenNLP look for the modules of a package in that package alone, by one search.

    It walks through a package without saying which it is. So for a package with a subpackage
    `models`, it also imports and walks through whatever else is called `models`, for example a
    folder of that name where a command is started. And for every module it lets Python forget the
    contents of all folders on the path, and searches them for `checklist` again, which takes a
    third of a second at the start of a command. Can be removed when AllenNLP lists the modules of a
    package with `pkgutil.iter_modules`, and forgets and searches once.
    """

    @replaces(module)
    def import_module_and_submodules(
        original: Any, package_name: str, exclude: set[str] | None = None
    ) -> None:
        left_out = set(exclude or ())
        try:
            importlib.import_module("checklist")
        except ImportError:
            left_out.add("allennlp.confidence_checks.task_checklists")
        importlib.invalidate_caches()
        with module.push_python_path("."):
            _import_with_submodules(package_name, left_out)


def _import_with_submodules(name: str, left_out: set[str]) -> None:
    if name in left_out:
        return
    path = getattr(importlib.import_module(name), "__path__", [])
    for _, child, _ in pkgutil.iter_modules(list(path)[:1]):  # further folders belong to others
        if not child.startswith(("_", "test")):
            _import_with_submodules(f"{name}.{child}", left_out)


def plateau_verbose(module: ModuleType) -> bool:
    """Drop the argument `verbose` of `ReduceLROnPlateau`, which torch 2.7 removed.

    AllenNLP always passes it. Can be removed when AllenNLP no longer does.
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


def amp_names(module: ModuleType) -> bool:
    """Replace `torch.cuda.amp`, deprecated since 2.4, by `torch.amp`.

    The deprecated module warns at every step. Can be removed when AllenNLP uses `torch.amp`.
    """
    import torch

    if not hasattr(getattr(torch, "amp", None), "GradScaler"):
        return False

    def autocast(enabled: bool = True, **options: Any) -> Any:
        return torch.amp.autocast("cuda", enabled=enabled, **options)

    scaler = functools.partial(torch.amp.GradScaler, "cuda")
    module.amp = SimpleNamespace(autocast=autocast, GradScaler=scaler)  # type: ignore[attr-defined]
    return True


def sent_from_pinned_memory(module: ModuleType) -> None:
    """Let `move_to_device` copy tensors to a GPU from page-locked memory.

    AllenNLP copies each tensor from pageable memory, so the host waits until the GPU has finished
    its queue. As with the data loader "declutr", the values of the tensors also stay known on the
    host (`declutr.system.host_memory`). Can be removed when AllenNLP uses page-locked memory.
    """

    @replaces(module)
    def move_to_device(original: Any, obj: Any, device: Any) -> Any:
        target = module.int_to_device(device)
        if (
            isinstance(obj, module.torch.Tensor)
            and (obj.device.type, target.type) == ("cpu", "cuda")
            and obj.layout == module.torch.strided
            and obj.nbytes <= _LARGEST_PINNED
            and not obj.is_pinned()  # its owner may reuse the memory before the copy is done
        ):
            return importlib.import_module(HOST_MEMORY).to_device(obj, target)
        return original(obj, device)  # for containers it calls this function for each element


def named_runs(module: ModuleType) -> None:
    """Give the run of the callback "wandb" an id, which AllenNLP asks wandb for in vain.

    Current releases of wandb have no `wandb.util.generate_id`. Can be removed when AllenNLP lets
    `wandb.init` choose the id.
    """

    @replaces(module.WandBCallback)
    def on_start(
        original: Any, self: Any, trainer: Any, is_primary: bool = True, **kwargs: Any
    ) -> None:
        unnamed = is_primary and self._run_id is None
        if unnamed and not hasattr(importlib.import_module("wandb").util, "generate_id"):
            self._run_id = secrets.token_hex(4)
        original(self, trainer, is_primary=is_primary, **kwargs)


def worker_processes(module: ModuleType) -> None:
    """Let data workers get a lock of the right context, and let spawned ones import the bridge.

    AllenNLP makes the lock of the progress bar with the *default* start method and passes it to
    processes with the start method of the loader, which Python refuses since 3.11.5. Can be removed
    when AllenNLP makes the lock with `ctx.RLock()` and no other switch is left.
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


class _WorkerContext:
    """A `multiprocessing` context whose processes unpickle a function of this package first."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Process(self, target: Callable[..., Any], args: tuple = (), **options: Any) -> Any:
        return self._context.Process(target=run_worker, args=(target, *args), **options)


def spawned_training(module: ModuleType) -> None:
    """Let distributed training spawn a function of this package, which imports the bridge.

    AllenNLP would spawn a function of its own. Can be removed together with the last of the other
    switches.
    """
    train_worker.__wrapped__ = module._train_worker  # type: ignore[attr-defined]
    module._train_worker = train_worker  # type: ignore[attr-defined]


def ended_training(module: ModuleType) -> None:
    """Let the processes of a distributed training end where the process that began them is stopped.

    Ctrl-C in a terminal tells all of them. But a signal to the first process alone, as `kill`, a
    job scheduler and notebooks send it, AllenNLP's processes knew nothing of: they trained on to
    the end, without an archive, and the first process waited for them. In a notebook, the same run
    that was begun again wrote to the same folder beside them. Can be removed when `train_model`
    ends its processes.
    """

    @replaces(module)
    def train_model(original: Any, *args: Any, **kwargs: Any) -> Any:
        before = set(multiprocessing.active_children())
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            if begun := set(multiprocessing.active_children()) - before:
                importlib.import_module(BEGUN_PROCESSES).end_processes(begun, error)
            raise


# A spawned process first unpickles the function that it will run. A reference to a function of
# AllenNLP would import AllenNLP before any plugin. A reference to one of the functions below
# imports this package first, and with it the bridge. (`declutr_bridge.pth` does the same for
# processes that see site-packages; these functions are for those that do not.)


def run_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Call the function of a data loader's worker process, with one thread for torch.

    Unpickling this function has installed the bridge in the process. More threads would take
    processors from training, and a forked worker would wait forever for the threads of its parent.
    """
    import torch

    torch.set_num_threads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return function(*args)


def train_worker(*args: Any, **kwargs: Any) -> Any:
    """Call AllenNLP's `_train_worker`, which `spawned_training` stored in `__wrapped__`."""
    import allennlp.commands.train  # noqa: F401  (its repair sets `__wrapped__` in this process)

    return train_worker.__wrapped__(*args, **kwargs)  # type: ignore[attr-defined]
