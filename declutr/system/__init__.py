"""Imports by name, on demand or from the current folder, `~`, and state that threads share."""

import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

_AnyLock = TypeVar("_AnyLock")


def free_after_fork(lock: _AnyLock) -> _AnyLock:
    """Return a lock of `threading`, which is free in a forked process, whoever holds it here."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lock._at_fork_reinit)  # type: ignore[attr-defined]
    return lock


LOADING = free_after_fork(threading.RLock())
"""Held while a model is opened, or a transformer loaded: by one thread after another.

transformers replaces functions for all threads meanwhile, such as the one that ties weights. Of two
threads at once, one puts the replacement of the other back, which then stays for good.
"""


def local_path(path: str | os.PathLike) -> Path:
    """Return a path of this machine; `~/x` is in the home folder, as shells take it outside quotes.

    A name such as `~x` stays as it is where there is no such user, unlike in `Path.expanduser`.
    """
    return Path(os.path.expanduser(path))


def is_sigterm(error: BaseException) -> bool:
    """Return whether AllenNLP's handler of SIGTERM raised an error, without importing AllenNLP."""
    return type(error).__name__ == "SigTermReceived"


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
def variable_set(name: str, value: str) -> Iterator[None]:
    """Return a context in which an environment variable has a value, in processes it starts too."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


@contextmanager
def loggers_at(level: int, *names: str) -> Iterator[None]:
    """Return a context in which the loggers of the given names have another level."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, own in zip(loggers, before, strict=True):
            logger.setLevel(own)
