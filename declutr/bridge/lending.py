"""Context managers that lend a module of AllenNLP the names it needs while its body runs.

The names are removed again afterwards. Packages that AllenNLP can do without have theirs in
`declutr.bridge.optional_packages`.
"""

import builtins
import contextlib
import importlib
import importlib.util
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

logger = logging.getLogger("declutr.bridge")

Layout = Mapping[str, Sequence[str]]

BORROWERS = ("allennlp", "rouge")  # packages whose import statements find stand-ins


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
def stand_in(
    package: str, layout: Layout, how: str = "", given: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Give AllenNLP's imports of a package stand-ins within this context, if it does not import.

    Only modules of AllenNLP and py-rouge get them, and `sys.modules` never has them: whatever else
    tries to import the package meanwhile still learns that it is absent.

    # Parameters

    package : the name of the package.
    layout : maps its submodules (`""` is the package itself) to the names expected in them. The
        names can be imported and subclassed; using one raises `MissingPackage` or `AttributeError`,
        which says what is missing.
    how : a sentence that says how to get the package, for the errors.
    given : values of some of these names, by the dotted name without the package.
    """
    try:
        importlib.import_module(package)
    except Exception as error:  # the package is absent, or built for another release of torch
        reason = f"{type(error).__name__}: {error}"
    else:
        yield
        return
    logger.debug("standing in for %s (%s)", package, reason)
    with _imported_by_allennlp(_stand_in_modules(package, layout, how, given or {})):
        yield


_LOCK = threading.Lock()
_OFFERED: list[dict[str, ModuleType]] = []
_python_import = builtins.__import__
_is_in_place = False  # also while another function that replaced `_import` since calls it


@contextlib.contextmanager
def _imported_by_allennlp(modules: dict[str, ModuleType]) -> Iterator[None]:
    """Let the import statements of AllenNLP's modules find these modules within this context."""
    global _is_in_place, _python_import
    with _LOCK:
        _OFFERED.append(modules)
        if not _is_in_place:
            _python_import, builtins.__import__ = builtins.__import__, _import
            _is_in_place = True
    try:
        yield
    finally:
        with _LOCK:
            _OFFERED.remove(modules)
            if not _OFFERED and builtins.__import__ is _import:
                builtins.__import__, _is_in_place = _python_import, False


def _import(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    importer, package = str((globals or {}).get("__name__")), name.partition(".")[0]
    if level == 0 and importer.partition(".")[0] in BORROWERS:
        for modules in tuple(_OFFERED):  # other threads change it
            if package in modules and name not in modules:
                raise modules[package].missing(name)  # type: ignore[attr-defined]
            if package in modules:
                return modules[name if fromlist else package]
    return _python_import(name, globals, locals, fromlist, level)  # type: ignore[arg-type]


def _stand_in_modules(
    package: str, layout: Layout, how: str, given: Mapping[str, Any]
) -> dict[str, ModuleType]:
    modules: dict[str, ModuleType] = {package: _StandIn(package, how)}
    for dotted, names in layout.items():
        path = package
        for part in filter(None, dotted.split(".")):
            parent, path = path, f"{path}.{part}"
            if path not in modules:
                modules[path] = _StandIn(path, how)
                setattr(modules[parent], part, modules[path])
        for name in names:
            dotted_name = f"{path}.{name}"
            value = given.get(dotted_name.partition(".")[2]) or absent(dotted_name, how)
            setattr(modules[path], name, value)
    return modules


def is_installed(package: str) -> bool:
    """Return whether a package can be found, without importing it."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # ValueError: something made a module of that name
        return sys.modules.get(package) is not None


class MissingPackage(ImportError):
    """Error of a feature of AllenNLP whose package is not installed."""


class _StandIn(ModuleType):
    """A module that reports its unknown names as missing from the environment."""

    def __init__(self, name: str, how: str) -> None:
        super().__init__(name, "A stand-in of declutr.bridge for a package that does not import.")
        self.__path__: list[str] = []
        self.__declutr_how__ = how

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(_missing(f"{self.__name__}.{name}", self.__declutr_how__))

    def missing(self, name: str) -> MissingPackage:
        return MissingPackage(_missing(name, self.__declutr_how__))


class _Absent(type):
    """A metaclass of classes that can be imported and subclassed, but not used."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise MissingPackage(_missing(cls.__declutr_absent__, cls.__declutr_how__))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(_missing(f"{cls.__declutr_absent__}.{name}", cls.__declutr_how__))


def absent(name: str, how: str = "") -> type:
    """Return a class that stands for a dotted name and raises an error when it is used.

    # Parameters

    name : the dotted name, which begins with the package.
    how : a sentence that says how to get the package, for the errors.
    """
    marks = {"__declutr_absent__": name, "__declutr_how__": how}
    return _Absent(name.rpartition(".")[2], (), marks)


def _missing(name: str, how: str) -> str:
    package = name.partition(".")[0]
    how = how or f"Install a {package!r} that does, or do without this feature."
    return (
        f"AllenNLP uses {name} here, which the {package!r} of this environment does not offer "
        f"(not installed, or too new). {how}"
    )
