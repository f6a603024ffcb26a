"""Safe reading of pickles: plain data and numpy arrays are accepted, everything else is refused.

A pickle is a program, and a pickle from the web may run anything. The reader here replaces the few
functions and classes that numpy's own pickles name by stand-ins, and builds arrays from the
arguments that the stand-ins receive. It never calls numpy's own classes, because `numpy.ndarray`
takes the pointers of an object array from raw bytes.
"""

import pickle
import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from declutr.evaluation.task import BrokenData, require_file


def load_plain_pickle(path: Path) -> Any:
    """Read a pickle of plain data and numpy arrays.

    Pickles of Python 2 are read too; their byte strings are decoded as Latin-1.

    # Raises

    `MissingData` : there is no such file.
    `BrokenData` : the file is truncated, is no pickle, or contains more than plain data.
    """
    with require_file(path).open("rb") as file:
        try:
            return _plain(_Unpickler(file, encoding="latin1").load())
        except BrokenData as error:
            raise BrokenData(f"{path} {error}") from None
        except Exception as error:  # a broken pickle can raise nearly anything
            raise BrokenData(f"{path} cannot be unpickled: {error!r}. Get it anew.") from error


def _latin1(text: str, encoding: str) -> bytes:
    """Encode text as Latin-1, as Python 3 pickles bytes in the protocols of Python 2.

    `_codecs.encode`, which such pickles name, would run any codec that the pickle asks for.
    """
    if encoding not in ("latin1", "latin-1"):
        raise BrokenData(f"encodes bytes with {encoding!r}, expected 'latin1'.")
    return text.encode("latin-1")


class _Dtype:
    """A stand-in for a `numpy.dtype` of numbers or text; no other dtype is accepted."""

    def __init__(self, code: str, *_: object) -> None:
        if not isinstance(code, str) or not re.fullmatch(r"[<>=|]?[?biufcSU]\d*", code):
            raise BrokenData(f"has an array of type {code!r}; expected numbers or text.")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        if state[1] in ("<", ">"):
            self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """A stand-in for a `numpy.ndarray` until all of the array has been read."""

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
    """Replace the stand-ins in a value by the arrays and dtypes that they stand for."""
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
