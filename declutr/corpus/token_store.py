"""Token stores: lists of integer arrays on disk, of which only the requested parts are read.

A store is a folder that numpy alone can read: `values.npy` (all arrays, concatenated),
`offsets.npy` (where each begins, plus the end), `num_tokens.npy` (the length of each document in
tokens) and `meta.json`; `checksums.json` has their checksums. `declutr.corpus.token_store_writer`
writes stores.
"""

import json
import os
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from declutr.corpus.array_files import read_header
from declutr.system.cache_folder import mark_in_use
from declutr.system.files import CheckedFile, DamagedFile, checksums_of, json_checksum, read_at

META = "meta.json"
CHECKSUMS = "checksums.json"
VALUES, OFFSETS, NUM_TOKENS = "values.npy", "offsets.npy", "num_tokens.npy"

_WHOLE = 1 << 17  # Bytes. The parts of longer documents are read one by one.
_CHECKED_AT_ONCE = 1 << 28  # Bytes. The values of larger stores are checked as they are read.


class DamagedStore(OSError):
    """Raised when the files of a store are not as they were written."""


class TokenStore:
    """The documents of one store: `store[i]` is a 1-D array, read from the file each time.

    Documents are read, not mapped: the pages of a mapped file count as memory of the process, so
    that an epoch over a large corpus would seem to fill it. The page cache of the system keeps what
    is read often. Reading is safe in threads and after a fork. `num_tokens`, the number of tokens
    of each document, `(len(store),)`, is mapped.

    Checksums are compared when a store is opened, except that the values of a store above 256 MiB
    are checked when they are first read. A store of version 1.5 has no checksums; for such a store,
    the sizes of the arrays and their agreement are checked.

    # Raises

    `DamagedStore` : if files are not as they were written, when the store is opened or read. After
        that, `exists` is false for the store, so that it is written again.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self.folder = Path(folder)
        meta = (self.folder / META).read_bytes()
        mark_in_use(self.folder / META, self)
        self._file: int | None = None
        self._checked_values: CheckedFile | None = None
        try:
            self.meta: dict[str, Any] = json.loads(meta)
            self._compare_checksums()
            # Make plain arrays over the maps: indexing `numpy.memmap` itself takes three times as
            # long.
            self._offsets = np.asarray(np.load(self.folder / OFFSETS, mmap_mode="r"))
            self.num_tokens = np.asarray(np.load(self.folder / NUM_TOKENS, mmap_mode="r"))
            with open(self.folder / VALUES, "rb") as file:
                self._dtype, self._begin = read_header(file)
            if self._checked_values is None:
                self._compare_arrays()
        except Exception as error:  # numpy raises all kinds for a broken header.
            of_files = isinstance(error, (DamagedFile, FileNotFoundError))
            if isinstance(error, (OSError, MemoryError)) and not of_files:
                raise
            raise self._damaged(error) from error

    def _compare_checksums(self) -> None:
        try:
            recorded = json.loads((self.folder / CHECKSUMS).read_text())
        except FileNotFoundError:  # Stores of version 1.5 have none.
            return
        if recorded[META] != json_checksum(self.meta):
            raise DamagedFile(f"'{self.folder / META}' is damaged.")
        for name in (OFFSETS, NUM_TOKENS, VALUES):
            begin, header, checksums = recorded[name]
            with open(self.folder / name, "rb") as file:
                if checksums_of(file.read(begin)) != header:
                    raise DamagedFile(f"'{self.folder / name}' is damaged: its header.")
            checked = CheckedFile(self.folder / name, checksums, begin)
            if name != VALUES or checked.path.stat().st_size <= _CHECKED_AT_ONCE:
                checked.require_all()
        self._checked_values = checked

    def _compare_arrays(self) -> None:
        """Raise if the arrays of a store without checksums do not fit each other."""
        lengths = np.diff(self._offsets)
        end = self._begin + int(self._offsets[-1]) * self._dtype.itemsize
        agree = (
            self.num_tokens.shape == lengths.shape
            and self._offsets[0] == 0
            and (lengths >= 0).all()
            and (self.num_tokens >= 0).all()
            and (self.folder / VALUES).stat().st_size == end
            and self.meta.get("num_tokens", self.num_tokens.sum()) == self.num_tokens.sum()
            # A store of bytes may have any number of them per token; a store of ids has one.
            and (self._dtype.itemsize == 1 or np.array_equal(lengths, self.num_tokens))
        )
        if not agree:
            raise DamagedFile(f"The arrays in '{self.folder}' do not fit each other.")

    def _damaged(self, error: Exception) -> DamagedStore:
        """Return the error for a damaged store, after marking the store to be written again."""
        said = "It is made again at the next start (of a run that was begun, with --recover)."
        try:
            os.replace(self.folder / META, self.folder / f"{META}.damaged")
        except OSError as not_moved:
            said = f"Remove the folder ({not_moved}); the corpus is tokenised again."
        return DamagedStore(
            f"The tokenised corpus '{self.folder}' is damaged ({error}). {said} If it happens "
            "again, check the disk."
        )

    def __len__(self) -> int:
        return len(self.num_tokens)

    def __getitem__(self, index: int) -> np.ndarray:
        start, end = self._bounds(index)
        return self._read(start, end - start)

    def parts(self, index: int, intervals: Iterable[Sequence[int]]) -> list[np.ndarray]:
        """Return the values `[start, end)` of one document for each interval.

        They are `store[index][start:end]`, but of a long document (a book, say) no more is read.
        """
        start, end = self._bounds(index)
        length = end - start
        if length * self._dtype.itemsize <= _WHOLE:
            document = self._read(start, length)
            return [document[begin:stop] for begin, stop in intervals]
        spans = (range(length)[begin:stop] for begin, stop in intervals)
        return [self._read(start + span.start, len(span)) for span in spans]

    def _bounds(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self.num_tokens):
            index = range(len(self))[index]  # Counts from the end, or raises IndexError.
        return int(self._offsets[index]), int(self._offsets[index + 1])

    def _read(self, start: int, count: int) -> np.ndarray:
        if self._file is None:
            file = open(self.folder / VALUES, "rb", buffering=0)  # noqa: SIM115 - kept open
            weakref.finalize(self, file.close)
            self._file = file.fileno()
        size, position = count * self._dtype.itemsize, self._begin + start * self._dtype.itemsize
        if self._checked_values is not None and size:
            try:
                self._checked_values.require(position - self._begin, position - self._begin + size)
            except DamagedFile as error:
                raise self._damaged(error) from error
        data = read_at(self._file, size, position)
        while len(data) < size:  # One call reads at most 2 GiB.
            more = read_at(self._file, size - len(data), position + len(data))
            if not more:
                raise OSError(
                    f"'{self.folder / VALUES}' ends at byte {position + len(data)}, expected "
                    f"{size - len(data)} more. Remove the folder; the corpus is tokenised again."
                )
            data += more
        return np.frombuffer(data, dtype=self._dtype)

    def __reduce__(self):
        # An open file cannot be pickled, and pickled maps would hold the whole corpus.
        return TokenStore, (str(self.folder),)

    @staticmethod
    def exists(folder: str | os.PathLike) -> bool:
        """Return whether a complete store is at `folder`."""
        return (Path(folder) / META).is_file()
