"""Context managers that lend a module of AllenNLP the names it needs while its body runs.

The names are removed again afterwards.
"""

import contextlib
import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

logger = logging.getLogger("declutr.bridge")


def torchvision() -> contextlib.AbstractContextManager[None]:
    """Stand in for torchvision, which three vision modules import and text training never uses.

    Can be removed when AllenNLP imports torchvision only where it uses it, or torchvision has
    builds on every index that has torch.
    """
    return stand_in("torchvision", {"ops.boxes": ()})


def fairscale() -> contextlib.AbstractContextManager[None]:
    """Stand in for fairscale, which only AllenNLP's own FSDP and its checkpoint wrapper use.

    Can be removed when AllenNLP imports fairscale only where it uses it.
    """
    return stand_in(
        "fairscale",
        {
            "nn": ("FullyShardedDataParallel",),
            "nn.wrap": ("enable_wrap", "wrap"),
            "nn.misc": ("FlattenParamsWrapper",),
            "nn.checkpoint": ("checkpoint_wrapper",),
            "optim.grad_scaler": ("GradScaler",),
        },
    )


def adamw() -> contextlib.AbstractContextManager[None]:
    """Lend `transformers.AdamW`, removed in 4.50, to the module that subclasses it.

    Can be removed when AllenNLP has an optimizer of its own for `huggingface_adamw`.
    """

    def make() -> type:
        from declutr.bridge.adamw import AdamW

        return AdamW

    return lent_names("transformers", {"AdamW": make})


def hub_names() -> contextlib.AbstractContextManager[None]:
    """Lend `HfFolder` and `Repository`, removed in huggingface_hub 1.0, to `push-to-hf`.

    They raise `ImportError` when used, because the git-based upload no longer exists.

    Can be removed when AllenNLP uploads with `HfApi.upload_folder`.
    """
    names = ("HfFolder", "Repository")
    makers = {name: partial(absent, f"huggingface_hub.{name}") for name in names}
    return lent_names("huggingface_hub", makers)


@contextlib.contextmanager
def lent_names(module_name: str, makers: Mapping[str, Callable[[], Any]]) -> Iterator[None]:
    """Give a module the names that it lacks, for as long as the context lasts.

    # Parameters

    module_name : the module that lacks names; it is imported.
    makers : for each name, a function that makes its value. Names that exist are left alone.
    """
    module = importlib.import_module(module_name)
    lent = [name for name in makers if not hasattr(module, name)]
    for name in lent:
        setattr(module, name, makers[name]())
        logger.debug("lending %s.%s", module_name, name)
    try:
        yield
    finally:
        for name in lent:
            delattr(module, name)


@contextlib.contextmanager
def stand_in(package: str, layout: Mapping[str, Sequence[str]]) -> Iterator[None]:
    """Put stand-ins for a package into `sys.modules` within this context, if it does not import.

    # Parameters

    package : the name of the package.
    layout : maps its submodules to the names expected in them. The names can be imported and
        subclassed; using one raises `ImportError` or `AttributeError`, which says what is missing.
    """
    # transformers remembers which optional packages it found, so it must look for them before.
    importlib.import_module("transformers")
    try:
        importlib.import_module(package)
    except Exception as error:  # the package is absent, or built for another release of torch
        reason = f"{type(error).__name__}: {error}"
    else:
        yield
        return
    logger.debug("standing in for %s (%s)", package, reason)
    added = _stand_in_modules(package, layout)
    saved = {name: sys.modules.pop(name) for name in list(sys.modules) if _is_in(name, package)}
    sys.modules.update(added)
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)
        sys.modules.update(saved)


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _stand_in_modules(package: str, layout: Mapping[str, Sequence[str]]) -> dict[str, ModuleType]:
    modules: dict[str, ModuleType] = {package: _StandIn(package)}
    for dotted, names in layout.items():
        path = package
        for part in dotted.split("."):
            parent, path = path, f"{path}.{part}"
            if path not in modules:
                modules[path] = _StandIn(path)
                setattr(modules[parent], part, modules[path])
        for name in names:
            setattr(modules[path], name, absent(f"{path}.{name}"))
    return modules


class _StandIn(ModuleType):
    """A module that reports its unknown names as missing from the environment."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "A stand-in of declutr.bridge for a package that does not import.")
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_missing(f"{self.__name__}.{name}"))


class _Absent(type):
    """A metaclass of classes that can be imported and subclassed, but not used."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise ImportError(_missing(cls.__declutr_absent__))

    def __getattr__(cls, name: str) -> Any:
        if name == "__declutr_absent__" or name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(_missing(f"{cls.__declutr_absent__}.{name}"))


def absent(name: str) -> type:
    """Return a class that stands for a dotted name and raises an error when it is used."""
    return _Absent(name.rpartition(".")[2], (), {"__declutr_absent__": name})


def _missing(name: str) -> str:
    package = name.partition(".")[0]
    return (
        f"AllenNLP uses {name} here, which the {package!r} of this environment does not offer "
        f"(not installed, or too new). Install a {package!r} that does, or do without this feature."
    )
