"""A growing list of integer arrays on disk, read back through memory maps.

A store is a folder that numpy alone can read: `values.npy` (all arrays, end to end), `offsets.npy`
(where each begins, plus the end), `num_tokens.npy` (length of each document in tokens) and
`meta.json`. It is written beside its place and renamed when whole, so a store that exists is
complete.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

_META = "meta.json"
_HOST = socket.gethostname()  # several nodes may share the folder


class TokenStore:
    """The documents of one store: `store[i]` is a 1-D array, a view of the memory map."""

    def __init__(self, folder: str | os.PathLike) -> None:
        self.folder = Path(folder)
        self.meta: dict[str, Any] = json.loads((self.folder / _META).read_text())
        self._values = np.load(self.folder / "values.npy", mmap_mode="r")
        self._offsets = np.load(self.folder / "offsets.npy", mmap_mode="r")
        self.num_tokens = np.load(self.folder / "num_tokens.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self.num_tokens)

    def __getitem__(self, index: int) -> np.ndarray:
        index = range(len(self))[index]  # refuses what lies outside, and counts from the end
        return self._values[self._offsets[index] : self._offsets[index + 1]]

    def __reduce__(self):
        # A pickled memory map would carry the whole corpus to every worker; the path is enough.
        return TokenStore, (str(self.folder),)

    @staticmethod
    def exists(folder: str | os.PathLike) -> bool:
        """Whether a whole store lies at `folder`."""
        return (Path(folder) / _META).is_file()


def remove_partial_stores(folder: str | os.PathLike) -> None:
    """Remove what killed writers of this machine left of the store at `folder`.

    None may be writing it now.
    """
    for partial in Path(folder).parent.glob(f"{Path(folder).name}.partial-{_HOST}-*"):
        shutil.rmtree(partial, ignore_errors=True)


class TokenStoreWriter:
    """Writes a store; use as a context manager. Nothing is left behind on an exception."""

    def __init__(self, folder: str | os.PathLike, dtype: np.dtype | type) -> None:
        self._final = Path(folder)
        self._partial = self._final.with_name(f"{self._final.name}.partial-{_HOST}-{os.getpid()}")
        self._dtype = np.dtype(dtype)
        self._total = 0
        self.length = 0  # documents so far
        self.meta: dict[str, Any] = {}

    def __enter__(self) -> TokenStoreWriter:
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        self._values = _ArrayFile(self._partial / "values.npy", self._dtype)
        self._offsets = _ArrayFile(self._partial / "offsets.npy", np.dtype(np.int64))
        self._num_tokens = _ArrayFile(self._partial / "num_tokens.npy", np.dtype(np.int64))
        self._offsets.append(np.zeros(1, dtype=np.int64))
        return self

    def append(self, arrays: list[np.ndarray], num_tokens: list[int]) -> None:
        """Add documents: their values, and how many tokens each has."""
        lengths = np.fromiter((len(array) for array in arrays), dtype=np.int64, count=len(arrays))
        self._offsets.append(self._total + np.cumsum(lengths))
        self._num_tokens.append(np.asarray(num_tokens, dtype=np.int64))
        self._values.append(np.concatenate([*arrays, np.empty(0, self._dtype)], dtype=self._dtype))
        self._total += int(lengths.sum())
        self.length += len(arrays)

    def __exit__(self, exception_type, *_: object) -> None:
        for file in (self._values, self._offsets, self._num_tokens):
            file.close()
        if exception_type is None:
            (self._partial / _META).write_text(json.dumps(self.meta, indent=2) + "\n")
            shutil.rmtree(self._final, ignore_errors=True)  # a folder without meta: not a store
            os.replace(self._partial, self._final)
        else:
            shutil.rmtree(self._partial, ignore_errors=True)


class _ArrayFile:
    """A 1-D `.npy` file of a length not known beforehand.

    numpy pads the header so that the first axis may grow; it is written again at the end.
    """

    def __init__(self, path: Path, dtype: np.dtype) -> None:
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115 - closed in close()
        self._dtype, self._length = dtype, 0
        self._write_header()

    def _write_header(self) -> None:
        self._file.seek(0)
        np.lib.format.write_array_header_1_0(
            self._file,
            {
                "descr": np.lib.format.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": (self._length,),
            },
        )

    def append(self, array: np.ndarray) -> None:
        self._length += len(array)
        self._file.write(np.ascontiguousarray(array, dtype=self._dtype).tobytes())

    def close(self) -> None:
        self._write_header()
        self._file.close()
