"""Modules imported by name: on demand, from the folder of the user, and while others keep quiet."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

# Two threads that import two modules of one package can wait for each other, which Python turns
# into an error for one of them. So only one thread at a time begins to import something here.
_IMPORTING = threading.RLock()


class NamesOnDemand(MutableMapping[str, Any]):
    """A dictionary that modules add entries to when they are imported, and that has them before.

    Whoever asks for a name of `places`, even whether it is taken, has its module imported first. A
    module that adds its own entry finds the name free all the same: it is being imported already.

    # Parameters

    known : the entries that there are, which others may keep a reference to.
    places : the module, or `"module:Class"`, that adds an entry, by name.
    """

    def __init__(self, known: dict[str, Any], places: Mapping[str, str]) -> None:
        self._known, self._places = known, dict(places)

    @property
    def imported(self) -> dict[str, Any]:
        """The entries of modules that have been imported, in the order in which they were added."""
        return dict(self._known)

    def __getitem__(self, name: str) -> Any:
        place = self._places.get(name)
        if place is not None:  # also of an entry that is there: its module may not have ended yet
            _import(place.partition(":")[0])
        return self._known[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._known[name] = value

    def __delitem__(self, name: str) -> None:
        _ = self[name]  # so that nothing adds it later
        self._places.pop(name, None)
        del self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._known, *self._places]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self)})"


def _import(module: str) -> None:
    if module in sys.modules:  # another thread may be importing it, which is waited for
        importlib.import_module(module)
    else:
        with _IMPORTING:
            importlib.import_module(module)


def attributes_on_demand(
    package: str, places: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that has names of modules in it.

    # Parameters

    package : its name.
    places : names, separated by blanks, by the module in the package that has them.
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


class NoSuchModule(ValueError):
    """There is no module of that name."""


def module_from_here(module: str, purpose: str) -> ModuleType:
    """Import and return a module of the user's, also from the folder that a command runs in.

    # Parameters

    module : its dotted name; installed, or below the current folder.
    purpose : what it is for, for the message.

    # Raises

    `NoSuchModule` : there is none. What the module itself cannot import is raised as it is.
    """
    here = os.getcwd()
    if not {"", here} & set(sys.path):
        sys.path.append(here)  # last: nothing that is installed is hidden by it
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # something that the module itself imports
        raise NoSuchModule(
            f"No module '{module}' for {purpose}: expected a file {module.replace('.', '/')}.py in "
            f"{here}, or a module that is installed."
        ) from error


@contextmanager
def loggers_at(level: int, *names: str) -> Iterator[None]:
    """Return a context in which the loggers of these names have this level."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, own in zip(loggers, before, strict=True):
            logger.setLevel(own)
