"""Array files that grow, with checksums of their contents."""

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np
from xxhash import xxh3_64

from declutr.system.files import BLOCK, checksums_of


class BlockHasher:
    """An incremental computation of the checksums of data that comes in pieces of any size."""

    def __init__(self) -> None:
        self._whole: list[str] = []
        self._last, self._filled = xxh3_64(), 0

    def update(self, data: bytes | memoryview) -> None:
        """Add the next bytes."""
        while len(data):
            part = data[: BLOCK - self._filled]
            self._last.update(part)
            self._filled += len(part)
            data = data[len(part) :]
            if self._filled == BLOCK:
                self._whole.append(self._last.hexdigest())
                self._last, self._filled = xxh3_64(), 0

    @property
    def checksums(self) -> str:
        """The concatenated checksums of all blocks so far, in hexadecimal."""
        return "".join([*self._whole, *([self._last.hexdigest()] if self._filled else [])])


class ArrayFile:
    """A 1-D `.npy` file whose length is not known beforehand.

    numpy pads the header so that the first axis may grow. The header is written again when the file
    is closed.

    # Parameters

    path : the file.
    dtype : the dtype of the values.
    mode : `"wb"` for a new file, `"r+b"` for one to continue (call `cut_to` next).

    # Attributes

    length : the number of values, counted before they are written.
    """

    def __init__(self, path: Path, dtype: np.dtype, mode: str) -> None:
        self._file: BinaryIO = open(path, mode)  # type: ignore[assignment] # noqa: SIM115
        self.name = path.name
        self._dtype, self.length = dtype, 0
        self._hasher = BlockHasher()
        self._write_header()
        self._begin = self._file.tell()

    def _write_header(self) -> None:
        self._file.seek(0)
        descr = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self.length,)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, array: np.ndarray) -> None:
        """Write the values of a 1-D array to the end of the file."""
        self.length += len(array)
        data = np.ascontiguousarray(array, dtype=self._dtype).view(np.uint8).data
        self._file.write(data)
        self._hasher.update(data)

    def cut_to(self, length: int) -> None:
        """Keep the first `length` values of a file that was opened to be continued.

        # Raises

        `ValueError` : if the file holds fewer values.
        """
        size = self._begin + length * self._dtype.itemsize
        self._file.flush()
        if not 0 <= length <= length + os.fstat(self._file.fileno()).st_size - size:
            raise ValueError(f"{self._file.name} holds fewer than {length} values")
        self._file.truncate(size)
        self._file.seek(self._begin)
        while block := self._file.read(BLOCK):
            self._hasher.update(block)
        self.length = length

    @property
    def checksums(self) -> str:
        """The checksums of all values so far."""
        return self._hasher.checksums

    def recorded(self) -> tuple[int, str, str]:
        """Return the length of the header in bytes, its checksum, and the checksums of the values.

        The file must be closed.
        """
        with open(self._file.name, "rb") as file:
            return self._begin, checksums_of(file.read(self._begin)), self.checksums

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return self._file.closed

    def sync(self) -> None:
        """Wait until all data written so far have reached the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write the final header, sync and close the file; a closed file is left as it is."""
        if not self._file.closed:
            try:
                self._write_header()
                self.sync()
            finally:
                self._file.close()


def read_header(file: BinaryIO) -> tuple[np.dtype, int]:
    """Return the dtype of a 1-D `.npy` file, read from its beginning, and where its values are."""
    form = np.lib.format
    version = form.read_magic(file)
    read = form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0
    return read(file)[2], file.tell()
