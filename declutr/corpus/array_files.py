"""Files of arrays that grow, with checksums of what is in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from declutr.system.files import BLOCK, BlockHasher


class ArrayFile:
    """A 1-D `.npy` file of a length not known beforehand.

    numpy pads the header so that the first axis may grow; it is written again at the end.
    """

    def __init__(self, path: Path, dtype: np.dtype, mode: str) -> None:
        self._file: BinaryIO = open(path, mode)  # type: ignore[assignment] # noqa: SIM115
        self.name = path.name
        self._dtype, self._length = dtype, 0
        self._hasher = BlockHasher()
        self._write_header()
        self._begin = self._file.tell()

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
        data = np.ascontiguousarray(array, dtype=self._dtype).view(np.uint8).data
        self._file.write(data)
        self._hasher.update(data)

    def cut_to(self, length: int) -> None:
        """Leave the first `length` values; raises `ValueError` if there are fewer."""
        size = self._begin + length * self._dtype.itemsize
        self._file.flush()
        if not 0 <= length <= length + os.fstat(self._file.fileno()).st_size - size:
            raise ValueError(f"{self._file.name} holds fewer than {length} values")
        self._file.truncate(size)
        self._file.seek(self._begin)
        while block := self._file.read(BLOCK):
            self._hasher.update(block)
        self._length = length

    @property
    def checksums(self) -> str:
        """Of all values so far."""
        return self._hasher.checksums

    def recorded(self) -> tuple[int, str, str]:
        """Of a closed file: the length of its header, its checksum, and those of the values."""
        with open(self._file.name, "rb") as file:
            return self._begin, checksums_of(file.read(self._begin)), self.checksums

    @property
    def closed(self) -> bool:
        return self._file.closed

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        if not self._file.closed:
            try:
                self._write_header()
                self.sync()
            finally:
                self._file.close()


def checksums_of(data: bytes) -> str:
    hasher = BlockHasher()
    hasher.update(data)
    return hasher.checksums


def read_header(file: BinaryIO) -> tuple[np.dtype, int]:
    """The dtype of a 1-D `.npy` file, and the byte at which its values begin."""
    version = np.lib.format.read_magic(file)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    return read(file)[2], file.tell()
