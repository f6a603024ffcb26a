"""A function of the user's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from declutr.encoder_sources.source import EncoderError, EncoderSource
from declutr.modules_from_here import NoSuchModule, module_from_here
from declutr.text_models.file_fingerprints import files_fingerprint


class PythonCallable(EncoderSource):
    """Calls `module:function` with a list of strings; an array or tensor `(n, d)` comes back.

    The module may lie in the current folder. A fingerprint can know of a change in the module's
    own file only; a callable that loads a model may have an attribute `fingerprint`, a string that
    stands for it.

    # Parameters

    place : `package.module:function`, or `package.module:object.method`.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        module, _, attribute = place.partition(":")
        if not module or not attribute:
            raise EncoderError(f"Expected MODULE:FUNCTION, got {place!r}.")
        self._encode, file = _imported(module, attribute)
        self._content = [
            files_fingerprint([file]) if file else None,
            str(getattr(self._encode, "fingerprint", "")),
        ]

    @property
    def dimension(self) -> None:
        return None

    def __call__(self, sentences: list[str]) -> np.ndarray:
        vectors: Any = self._encode(sentences)
        if hasattr(vectors, "detach"):  # a tensor, on some device and of some precision
            vectors = vectors.detach().float().cpu().numpy()
        return np.asarray(vectors)

    def describe(self) -> dict[str, Any]:
        return {"kind": "Python callable", "place": self._place, "content": self._content}


def _imported(module: str, attribute: str) -> tuple[Callable[[list[str]], Any], Path | None]:
    """The callable, and the file of its module."""
    try:
        found: Any = module_from_here(module, f"'{module}:{attribute}'")
    except NoSuchModule as error:
        raise EncoderError(str(error)) from error
    source = getattr(found, "__file__", None)
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise EncoderError(f"{module!r} ({source}) has no {attribute!r}.")
        found = getattr(found, name)
    if inspect.isclass(found) or not callable(found):
        raise EncoderError(
            f"Expected '{module}:{attribute}' to be a function of a list of strings, got "
            f"{'the class' if inspect.isclass(found) else 'an object of type'} "
            f"{found.__name__ if inspect.isclass(found) else type(found).__name__}."
        )
    return found, Path(source) if source else None
