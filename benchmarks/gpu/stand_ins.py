"""Modules that AllenNLP imports and training on text never uses, where they are not installed.

A machine for measuring may have no registry, and these are large or have many needs of their own.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAMES = (
    *("spacy", "boto3", "botocore", "nltk", "lmdb"),
    *("google.auth", "google.cloud", "google.api_core", "google.oauth2"),
)
_ERRORS = ("Error", "Exception", "NotFound")


class _Named(type):
    """Classes any attribute of which is such a class."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything


class _Anything(metaclass=_Named):
    """May be subclassed, named in annotations and caught; not made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            f"{type(self).__name__} stands in for a class of a library that is not installed."
        )

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


class _StandIn(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # a package, so that modules under it are looked for

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        bases = (_Anything, Exception) if name.endswith(_ERRORS) else (_Anything,)
        value = _Named(name, bases, {})
        setattr(self, name, value)
        return value


class Finder(MetaPathFinder, Loader):
    """Finds `names` and whatever lies under them, all empty. Comes after all other finders."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        found = any(name == top or name.startswith(f"{top}.") for top in self.names)
        return ModuleSpec(name, self, is_package=True) if found else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def install(names: Sequence[str] = NAMES) -> list[str]:
    """Put stand-ins in place of those of `names` that are not installed; which these are."""
    missing = [name for name in names if not _installed(name)]
    if missing:
        sys.meta_path.append(Finder(missing))
    return missing


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # of the package it lies in
        return False
