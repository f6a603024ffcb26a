"""Pickles of plain data and numpy arrays, and nothing else.

A pickle is a program; one from the web may run anything. This reader gives it stand-ins for the few
names that numpy's own pickles use, and makes arrays of what they were told. numpy's classes
themselves it never gets: they take an object array's pointers from bytes.
"""

from __future__ import annotations

import pickle
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from declutr.evaluation.task import BrokenData, require_file


def load_plain_pickle(path: Path) -> Any:
    """What a pickle holds, of Python 2 too, whose strings are taken for Latin-1.

    # Raises

    `MissingData` : there is no such file.
    `BrokenData` : it is cut off, no pickle, or holds more than plain data.
    """
    with require_file(path).open("rb") as file:
        try:
            return _plain(_Unpickler(file, encoding="latin1").load())
        except BrokenData as error:
            raise BrokenData(f"{path} {error}") from None
        except Exception as error:  # a broken pickle can raise nearly anything
            raise BrokenData(f"{path} cannot be unpickled: {error!r}. Get it anew.") from error


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in Python 2's protocols; `_codecs.encode` could do more."""
    if encoding not in ("latin1", "latin-1"):
        raise BrokenData(f"encodes bytes with {encoding!r}, expected 'latin1'.")
    return text.encode("latin-1")


class _Dtype:
    """Stands in for a `numpy.dtype` of numbers or text, which has no pointers."""

    def __init__(self, code: str, *_: object) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[<>=|]?[?biufcSU]\d*", code):
            raise BrokenData(f"has an array of type {code!r}; expected numbers or text.")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stands in for a `numpy.ndarray` until all of it has been read."""

    value: np.ndarray

    def __setstate__(self, state: tuple) -> None:
        _, shape, kind, fortran, raw = state
        self.value = _from_bytes(raw, kind, shape, "F" if fortran else "C")


def _from_bytes(raw: Any, kind: _Dtype, shape: tuple[int, ...], order: Any = "C") -> np.ndarray:
    if isinstance(raw, str):  # bytes of Python 2
        raw = raw.encode("latin-1")
    return np.frombuffer(raw, kind.dtype).reshape(shape, order=order).copy(order="K")


def _scalar(kind: _Dtype, raw: Any) -> Any:
    return _from_bytes(raw, kind, ())[()]


def _plain(value: Any) -> Any:
    """With arrays in place of what stands in for them."""
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return type(value)((_plain(key), _plain(held)) for key, held in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(held) for held in value)
    if isinstance(value, _Dtype):
        return value.dtype
    return value


_CORES = ("numpy.core", "numpy._core")  # in numpy 1 and 2
_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): "numpy.ndarray",  # an argument of `_reconstruct`, not to be called
    ("numpy", "dtype"): _Dtype,
    **{(f"{core}.multiarray", "_reconstruct"): lambda *_: _Array() for core in _CORES},
    **{(f"{core}.multiarray", "scalar"): _scalar for core in _CORES},
    **{(f"{core}.numeric", "_frombuffer"): _from_bytes for core in _CORES},
    ("_codecs", "encode"): _latin1,
    ("collections", "OrderedDict"): OrderedDict,
    **{
        (builtins, kind.__name__): kind
        for builtins in ("builtins", "__builtin__")
        for kind in (set, frozenset, bytearray, complex)
    },
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise BrokenData(
                f"names {module}.{name}; only numpy arrays and plain data are read, because a "
                "pickle could run anything."
            )
        return _KNOWN[(module, name)]
