"""Pickles of plain data and numpy arrays, and nothing else.

A pickle is a program; one from the web may run anything. This reader knows only the few functions
that arrays and numbers are made of.
"""

from __future__ import annotations

import pickle
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
            return _Unpickler(file, encoding="latin1").load()
        except BrokenData as error:
            raise BrokenData(f"{path} {error}") from None
        except Exception as error:  # a broken pickle can raise nearly anything
            raise BrokenData(f"{path} cannot be unpickled: {error!r}. Get it anew.") from error


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in Python 2's protocols; `_codecs.encode` could do more."""
    if encoding not in ("latin1", "latin-1"):
        raise BrokenData(f"encodes bytes with {encoding!r}, expected 'latin1'.")
    return text.encode("latin-1")


def _known() -> dict[tuple[str, str], Any]:
    # Taken from what numpy itself writes, because the functions live in private modules.
    reconstruct = np.zeros(1).__reduce__()[0]
    from_buffer = np.zeros(1).__reduce_ex__(5)[0]
    scalar = np.float64(0).__reduce__()[0]
    known: dict[tuple[str, str], Any] = {
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
        ("_codecs", "encode"): _latin1,
        ("collections", "OrderedDict"): OrderedDict,
    }
    for package in ("numpy.core", "numpy._core"):
        known[(f"{package}.multiarray", "_reconstruct")] = reconstruct
        known[(f"{package}.multiarray", "scalar")] = scalar
        known[(f"{package}.numeric", "_frombuffer")] = from_buffer
    for builtins in ("builtins", "__builtin__"):
        for kind in (set, frozenset, bytearray, complex):
            known[(builtins, kind.__name__)] = kind
    return known


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        known = _known()
        if (module, name) not in known:
            raise BrokenData(
                f"names {module}.{name}; only numpy arrays and plain data are read, because a "
                "pickle could run anything."
            )
        return known[(module, name)]
