"""Redirects from the module paths of the original package and of earlier releases.

Modules can still be imported by their earlier paths, which give the same module objects. Only
Python code needs this: recipes and archives contain registered names, not module paths. The paths
of the original package (Giorgi et al., 2021) stay; those of earlier releases are deprecated.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from declutr.deprecations import MODULES, PACKAGE, PACKAGES, SPLIT, Deprecated, warn

ORIGINAL = {
    "dataset_reader": "data.span_reader",
    "encoder": "inference.encoder",
    "losses": "objectives",
    "losses.pytorch_metric_learning": "objectives",
    "miners": "objectives",
    "miners.pytorch_metric_learning": "objectives",
    "model": "models.declutr",
    "modules.text_field_embedders": "modules.embedders",
    "modules.text_field_embedders.mlm_text_field_embedder": "modules.embedders",
    "modules.token_embedders": "modules.embedders",
    "modules.token_embedders.pretrained_transformer_embedder_mlm": "modules.embedders",
    "predictor": "models.predictor",
}
"""The current modules of the original package's public names, by its own paths, which stay."""

_RENAMED = {
    "NTXentLoss": "NTXent",
    "PyTorchMetricLearningLoss": "Objective",
    "PyTorchMetricLearningMiner": "Miner",
}
"""The current names of the original package's classes that are called otherwise today."""

_WHOLE = {**MODULES, **ORIGINAL}
_PLACES = {**_WHOLE, **SPLIT, **PACKAGES}
# Modules named like a function that the package has now, which their import hides.
_FUNCTIONS = ("objectives.info_nce", "objectives.jensen_shannon")


def install() -> _EarlierPaths:
    """Install the finder that lets modules be imported by their earlier paths, once; return it."""
    for finder in sys.meta_path:
        if isinstance(finder, _EarlierPaths):
            return finder
    finder = _EarlierPaths()
    sys.meta_path.insert(0, finder)
    return finder


def place_of(path: str) -> str | None:
    """Return the current path of a module that has moved, or `None` if it has not.

    Both paths are dotted and relative to `declutr`. A module inside a package that has moved is
    found by the path of the package. So `"semantic_search.index"` gives `"search.index"`.
    """
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        place = _WHOLE.get(".".join(parts[:count]))
        if place is not None:
            return ".".join([place, *parts[count:]])
    return None


def names_of(path: str) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` that looks names up in the modules that have them now.

    It is for a package that was a module in earlier releases, for a module that was split, and for
    a package whose modules have moved.

    # Parameters

    path : the earlier path of the module or package, with `declutr`.
    """
    inside = path.partition(".")[2]

    def is_module(name: str) -> bool:
        """Whether a package of today has such a module, which the import system finds itself."""
        folders = sys.modules[path].__path__ if inside in PACKAGES else []
        return PathFinder.find_spec(f"{path}.{name}", folders) is not None

    def __getattr__(name: str) -> Any:
        if not name.startswith("__") and not is_module(name):
            called = _RENAMED.get(name, name) if inside in ORIGINAL else name
            for place in _PLACES[inside].split():
                found = getattr(importlib.import_module(f"{PACKAGE}.{place}"), called, None)
                if found is not None:
                    _warn(f"{inside}.{name}", f"{place}.{called}", of=inside)
                    return found
        raise AttributeError(f"module {path!r} has no attribute {name!r}")

    return __getattr__


def _warn(old: str, new: str, of: str) -> None:
    """Warn that a name or module is elsewhere, unless the path `of` is one that stays."""
    if of not in ORIGINAL:
        warn(Deprecated(f"{PACKAGE}.{old}", f"{PACKAGE}.{new}"))


class _EarlierPaths(MetaPathFinder):
    """A finder for earlier module paths, to be asked before the finders that search folders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, inside = fullname.partition(".")
        if package != PACKAGE or not inside or inside in PACKAGES:
            return None
        place = SPLIT.get(inside) or place_of(inside)
        if place is None:
            return None
        held = any(other.startswith(f"{inside}.") for other in _PLACES)
        if held or inside in SPLIT or place == "objectives":
            return ModuleSpec(fullname, _Names(), is_package=held)
        return ModuleSpec(fullname, _Moved(inside, place))


class _Moved(Loader):
    """A loader that returns the current module for an earlier path, both relative to `declutr`."""

    def __init__(self, path: str, place: str) -> None:
        self._path, self._place = path, place

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._module = importlib.import_module(f"{PACKAGE}.{self._place}")
        self._spec = self._module.__spec__
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has replaced it by the earlier path's
        _warn(self._path, self._place, of=self._path)


class _Names(Loader):
    """A loader of modules that have the names of others, which are looked up when they are used."""

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        path = module.__name__
        module.__dict__["__getattr__"] = names_of(path)
        if path.partition(".")[2] in _FUNCTIONS:
            module.__class__ = _NamedAsAFunction


class _NamedAsAFunction(ModuleType):
    """A callable module that stands in for the function of the same name that it hides."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        _, _, inside = self.__name__.partition(".")
        module = importlib.import_module(f"{PACKAGE}.{SPLIT[inside]}")
        return getattr(module, inside.rpartition(".")[2])(*args, **kwargs)
