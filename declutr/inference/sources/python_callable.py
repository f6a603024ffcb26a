"""A function of the user's own."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from declutr.inference.fingerprints import files_fingerprint
from declutr.inference.sources.source import EncoderError, EncoderSource
from declutr.inference.sources.source_files import source_files
from declutr.system.imports import NoSuchModule, module_from_here

_known: dict[str, tuple[ModuleSpec | None, str]] = {}
"""By module, what it was loaded from and the fingerprint of its files when it was first used."""


class PythonCallable(EncoderSource):
    """Calls `module:function` with a list of strings; an array or tensor `(n, d)` comes back.

    The module may lie in the current folder. A fingerprint knows of the function's name, of the
    module's file and of those that it imports, installed packages left out. It cannot know of files
    that the function reads or of settings from elsewhere: the function, or the object it is a
    method of, may have an attribute `fingerprint`, a string that stands for them.

    # Parameters

    place : `package.module:function`, or `package.module:object.method`.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        module, _, self._function = place.partition(":")
        if not module or not self._function:
            raise EncoderError(f"Expected MODULE:FUNCTION, got {place!r}.")
        self._encode, owner, marks = _imported(module, self._function)
        self._content = [_code(owner), *marks]

    @property
    def dimension(self) -> None:
        return None

    def __call__(self, sentences: list[str]) -> np.ndarray:
        vectors: Any = self._encode(sentences)
        if hasattr(vectors, "detach"):  # a tensor, on some device and of some precision
            vectors = vectors.detach().float().cpu().numpy()
        return np.asarray(vectors)

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "Python callable",
            "place": self._place,
            "function": self._function,
            "content": self._content,
        }


def _imported(module: str, attribute: str) -> tuple[Callable[[list[str]], Any], Any, list[str]]:
    """The callable, its module, and the attributes `fingerprint` on the way from there."""
    try:
        owner = module_from_here(module, f"'{module}:{attribute}'")
    except NoSuchModule as error:
        raise EncoderError(str(error)) from error
    found: Any = owner
    marks = []
    for name in attribute.split("."):
        if not hasattr(found, name):
            file = getattr(owner, "__file__", None)
            raise EncoderError(f"{module!r} ({file}) has no {attribute!r}.")
        found = getattr(found, name)
        marks.append(str(getattr(found, "fingerprint", "")))
    if inspect.isclass(found) or not callable(found):
        raise EncoderError(
            f"Expected '{module}:{attribute}' to be a function of a list of strings, got "
            f"{'the class' if inspect.isclass(found) else 'an object of type'} "
            f"{found.__name__ if inspect.isclass(found) else type(found).__name__}."
        )
    return found, owner, marks


def _code(module: ModuleType) -> str | None:
    """A fingerprint of the code that runs: something new each time where that is not the files'."""
    file = getattr(module, "__file__", None)
    if not file:
        return None
    now = files_fingerprint(source_files(module.__name__, Path(file)))
    spec = module.__spec__  # another object after a reload
    loaded, first = _known.setdefault(module.__name__, (spec, now))
    if loaded is not spec:
        _known[module.__name__] = spec, now
    elif first != now:  # the files have changed since, what was imported from them has not
        return uuid.uuid4().hex
    return now
