"""Imports by name, on demand or from the current folder, and control of the levels of loggers."""

import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from importlib import metadata
from types import ModuleType
from typing import Any

# Two threads that import two modules of one package can wait for each other, and Python resolves
# such a deadlock by an error in one of them. Only one thread at a time begins an import here.
_IMPORTING = threading.RLock()


class NamesOnDemand(MutableMapping[str, Any]):
    """A dictionary whose entries are added by modules that are imported on demand.

    Any access to a name in `places`, including a test for membership, imports its module first. A
    module that adds its own entry still finds the name free, because its import is under way.

    # Parameters

    known : the existing entries; other code may keep a reference to this dictionary.
    places : the module, or `"module:Class"`, that adds an entry, by the name of the entry.
    """

    def __init__(self, known: dict[str, Any], places: Mapping[str, str]) -> None:
        self._known, self._places = known, dict(places)

    @property
    def imported(self) -> dict[str, Any]:
        """The entries of modules that have been imported, in the order in which they were added."""
        return dict(self._known)

    def __getitem__(self, name: str) -> Any:
        place = self._places.get(name)
        # This applies to existing entries too, as another thread may still be importing the module.
        if place is not None:
            _import(place.partition(":")[0])
        return self._known[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._known[name] = value

    def __delitem__(self, name: str) -> None:
        _ = self[name]  # The import of its module must not add the entry again later.
        self._places.pop(name, None)
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._known, *self._places]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"


def _import(module: str) -> None:
    if module in sys.modules:  # Another thread may be importing it; this waits for the end.
        importlib.import_module(module)
    else:
        with _IMPORTING:
            importlib.import_module(module)


def attributes_on_demand(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package that exports names of its modules lazily.

    # Parameters

    package : the name of the package.
    places : the names that each module of the package exports, separated by spaces, by the name of
        the module relative to the package.
    """
    modules = {
        name: f"{package}.{place}" for place, names in places.items() for name in names.split()
    }

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return __getattr__, __dir__


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of packages by their names, of those that are installed."""
    found = {}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


class NoSuchModule(ValueError):
    """Raised if there is no module of a name that the user gave."""


def module_from_here(module: str, purpose: str) -> ModuleType:
    """Import and return a module of the user, installed or below the current folder.

    # Parameters

    module : the dotted name of the module.
    purpose : what the module is needed for, for the error message.

    # Raises

    `NoSuchModule` : if there is no such module.
    `ImportError` : if the module itself fails to import another one.
    """
    here = os.getcwd()
    if not {"", here} & set(sys.path):
        sys.path.append(here)  # At the end, it does not hide installed modules.
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # The missing module is one that the user's module imports.
        raise NoSuchModule(
            f"No module '{module}' for {purpose}: expected a file {module.replace('.', '/')}.py in "
            f"{here}, or a module that is installed."
        ) from error


@contextmanager
def raised_as(kind: type[Exception], *kinds: type[Exception]) -> Iterator[None]:
    """Return a context that raises errors of some `kinds` as another kind with the same message."""
    try:
        yield
    except kinds as error:
        raise kind(str(error)) from error


@contextmanager
def loggers_at(level: int, *names: str) -> Iterator[None]:
    """Return a context in which the loggers of the given names have another level.

    # Parameters

    level : the level, such as `logging.WARNING`.
    names : the names of the loggers.
    """
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, own in zip(loggers, before, strict=True):
            logger.setLevel(own)
