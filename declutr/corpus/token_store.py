"""A growing list of integer arrays on disk, and reading from it what is asked for.

A store is a folder that numpy alone can read: `values.npy` (all arrays, end to end), `offsets.npy`
(where each begins, plus the end), `num_tokens.npy` (length of each document in tokens) and
`meta.json`; `checksums.json` has checksums of them. It is written beside its place and renamed when
whole, so a store that exists is complete. Beside it lies also a journal of what is safely on disk:
a writer that was interrupted, or killed, is continued by the next one.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from declutr.system.atomic_files import write_whole
from declutr.system.checksums import BLOCK, BlockHasher, CheckedFile, DamagedFile, json_checksum

logger = logging.getLogger(__name__)

_META = "meta.json"
_CHECKSUMS = "checksums.json"
_VALUES, _OFFSETS, _NUM_TOKENS = "values.npy", "offsets.npy", "num_tokens.npy"
_JOURNAL = "journal.json"
_JOURNAL_EVERY = 10.0  # seconds; writing one waits for the disk
_WHOLE = 1 << 17  # bytes: of longer documents, parts are read one by one
_CHECKED_AT_ONCE = 1 << 28  # bytes: values of larger stores are checked as they are read


class DamagedStore(OSError):
    """A store whose files are not as they were written."""


class TokenStore:
    """The documents of one store: `store[i]` is a 1-D array, read from the file each time.

    Documents are read, not mapped: pages of a mapped file count as memory of the process, so an
    epoch over a large corpus would seem to fill it. What is kept is the page cache's business.
    Reading is safe in threads and after a fork. `num_tokens` (tokens of each document) is mapped.

    Checksums are compared when a store is opened, those of the values of a store above 256 MiB
    when they are first read. A store of version 1.5 has none: of that, only the arrays' sizes and
    whether they agree with each other can be checked.

    # Raises

    `DamagedStore` : files are not as they were written; when opening, or where they are read. Then
        the store is no longer one for `exists`, so that it is written again.
    """

    def __init__(self, folder: str | os.PathLike) -> None:
        self.folder = Path(folder)
        meta = (self.folder / _META).read_bytes()
        self._file: int | None = None
        self._checked_values: CheckedFile | None = None
        try:
            self.meta: dict[str, Any] = json.loads(meta)
            self._compare_checksums()
            # Plain arrays over the maps: indexing `numpy.memmap` itself costs three times as much.
            self._offsets = np.asarray(np.load(self.folder / _OFFSETS, mmap_mode="r"))
            self.num_tokens = np.asarray(np.load(self.folder / _NUM_TOKENS, mmap_mode="r"))
            with open(self.folder / _VALUES, "rb") as file:
                self._dtype, self._begin = _read_header(file)
            if self._checked_values is None:
                self._compare_arrays()
        except Exception as error:  # numpy raises nearly anything for a broken header
            of_files = isinstance(error, (DamagedFile, FileNotFoundError))
            if isinstance(error, (OSError, MemoryError)) and not of_files:
                raise
            raise self._damaged(error) from error

    def _compare_checksums(self) -> None:
        try:
            recorded = json.loads((self.folder / _CHECKSUMS).read_text())
        except FileNotFoundError:  # of version 1.5
            return
        if recorded[_META] != json_checksum(self.meta):
            raise DamagedFile(f"'{self.folder / _META}' is damaged.")
        for name in (_OFFSETS, _NUM_TOKENS, _VALUES):
            begin, header, checksums = recorded[name]
            with open(self.folder / name, "rb") as file:
                if _checksums(file.read(begin)) != header:
                    raise DamagedFile(f"'{self.folder / name}' is damaged: its header.")
            checked = CheckedFile(self.folder / name, checksums, begin)
            if name != _VALUES or checked.path.stat().st_size <= _CHECKED_AT_ONCE:
                checked.require_all()
        self._checked_values = checked

    def _compare_arrays(self) -> None:
        """See that the arrays of a store without checksums fit each other."""
        lengths = np.diff(self._offsets)
        end = self._begin + int(self._offsets[-1]) * self._dtype.itemsize
        agree = (
            self.num_tokens.shape == lengths.shape
            and self._offsets[0] == 0
            and (lengths >= 0).all()
            and (self.num_tokens >= 0).all()
            and (self.folder / _VALUES).stat().st_size == end
            and self.meta.get("num_tokens", self.num_tokens.sum()) == self.num_tokens.sum()
            # Bytes of text are as many as they are; of ids, there is one for each token.
            and (self._dtype.itemsize == 1 or np.array_equal(lengths, self.num_tokens))
        )
        if not agree:
            raise DamagedFile(f"The arrays in '{self.folder}' do not fit each other.")

    def _damaged(self, error: Exception) -> DamagedStore:
        """Have the store written again by the next who wants it."""
        said = "It is made again at the next start (of a run that was begun, with --recover)."
        try:
            os.replace(self.folder / _META, self.folder / f"{_META}.damaged")
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
        """The values `[start, end)` of one document for each interval: `store[index][start:end]`.

        Of a long document (a book, say) no more is read than that.
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
            index = range(len(self))[index]  # refuses what lies outside, and counts from the end
        return int(self._offsets[index]), int(self._offsets[index + 1])

    def _read(self, start: int, count: int) -> np.ndarray:
        if self._file is None:
            self._file = os.open(self.folder / _VALUES, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._file)
        size, position = count * self._dtype.itemsize, self._begin + start * self._dtype.itemsize
        if self._checked_values is not None and size:
            try:
                self._checked_values.require(position - self._begin, position - self._begin + size)
            except DamagedFile as error:
                raise self._damaged(error) from error
        data = os.pread(self._file, size, position)
        while len(data) < size:  # one call reads 2 GiB at most
            more = os.pread(self._file, size - len(data), position + len(data))
            if not more:
                raise OSError(
                    f"'{self.folder / _VALUES}' ends at byte {position + len(data)}, expected "
                    f"{size - len(data)} more. Remove the folder; the corpus is tokenised again."
                )
            data += more
        return np.frombuffer(data, dtype=self._dtype)

    def __reduce__(self):
        # An open file cannot be pickled, and maps would carry the whole corpus; the path is enough.
        return TokenStore, (str(self.folder),)

    @staticmethod
    def exists(folder: str | os.PathLike) -> bool:
        """Whether a whole store lies at `folder`."""
        return (Path(folder) / _META).is_file()


class _State(NamedTuple):
    """How much has been written."""

    length: int = 0
    num_values: int = 0
    num_tokens: int = 0


class TokenStoreWriter:
    """Writes a store; use as a context manager, in one process at a time.

    On entry it takes up what an earlier writer of the same store left, as far as its journal says:
    `length` documents are then there already, and the caller appends those after them.

    After an exception what was written is kept for the next writer (after a kill, less what was
    appended since the last journal), but after those of `drop_after` nothing is left behind.

    # Parameters

    folder : the place of the store.
    dtype : of the values.
    drop_after : exceptions that speak against what was written before them.
    journal_every : seconds between journals. Each waits until the data has reached the disk.
    before_journal : called before each journal, and before the store is complete; what it raises
        prevents them. A chance to see that the source is still what it was.
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        dtype: np.dtype | type,
        *,
        drop_after: tuple[type[BaseException], ...] = (),
        journal_every: float | None = None,
        before_journal: Callable[[], object] = lambda: None,
    ) -> None:
        self._final = Path(folder)
        self._partial = self._final.with_name(f"{self._final.name}.partial")
        self._dtype = np.dtype(dtype)
        self._drop_after = drop_after
        self._every = _JOURNAL_EVERY if journal_every is None else journal_every
        self._before_journal = before_journal
        self._state = _State()
        self.notes: dict[str, Any] = {}  # the caller's, kept in the journal
        self.meta: dict[str, Any] = {}

    @property
    def length(self) -> int:
        """Documents so far."""
        return self._state.length

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents so far."""
        return self._state.num_tokens

    def __enter__(self) -> TokenStoreWriter:
        self._final.parent.mkdir(parents=True, exist_ok=True)
        for abandoned in self._final.parent.glob(f"{self._partial.name}-*"):
            shutil.rmtree(abandoned, ignore_errors=True)  # of version 1.0, which could not resume
        if not self._take_up():
            shutil.rmtree(self._partial, ignore_errors=True)
            self._partial.mkdir()
            self._open("wb")
            self._offsets.append(np.zeros(1, dtype=np.int64))
        self._journal_due = time.monotonic() + self._every
        return self

    def append(self, arrays: Sequence[np.ndarray], num_tokens: Sequence[int]) -> None:
        """Add documents: their values, and how many tokens each has."""
        values = np.concatenate([*arrays, np.empty(0, self._dtype)], dtype=self._dtype)
        lengths = np.fromiter(map(len, arrays), dtype=np.int64, count=len(arrays))
        self.append_joined(values, lengths, np.asarray(num_tokens, dtype=np.int64))

    def append_joined(
        self, values: np.ndarray, lengths: np.ndarray, num_tokens: np.ndarray
    ) -> None:
        """The same for the values of all documents end to end, and the number of each."""
        state = self._state
        self._values.append(values)
        self._offsets.append(state.num_values + np.cumsum(lengths))
        self._num_tokens.append(num_tokens)
        # In one step: an interrupt finds a batch counted whole or not at all.
        self._state = _State(
            state.length + len(lengths),
            state.num_values + len(values),
            state.num_tokens + int(num_tokens.sum()),
        )

    def journal_if_due(self) -> None:
        """Make what was appended safe from a kill, if the last time is long enough ago."""
        if time.monotonic() >= self._journal_due:
            self._write_journal()

    def __exit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        if exception_type is None:
            try:
                self._complete()
            except BaseException as error:
                self._give_up(type(error))
                raise
        else:
            self._give_up(exception_type)

    def _complete(self) -> None:
        self._write_journal()
        self._close()
        recorded: dict[str, Any] = {file.name: file.recorded() for file in self._files()}
        recorded[_META] = json_checksum(self.meta)
        write_whole(self._partial / _CHECKSUMS, json.dumps(recorded) + "\n")
        write_whole(self._partial / _META, json.dumps(self.meta, indent=2) + "\n")
        shutil.rmtree(self._final, ignore_errors=True)  # a folder without meta: not a store
        os.replace(self._partial, self._final)
        # Not before: without it, a writer killed just now would have written in vain.
        (self._final / _JOURNAL).unlink(missing_ok=True)

    def _give_up(self, reason: type[BaseException]) -> None:
        keep = bool(self.length) and not issubclass(reason, self._drop_after)
        if keep and not self._values.closed:  # else all is there but its name
            try:
                self._write_journal()
            except OSError as error:  # a full disk: the journal before this one holds
                logger.warning("Could not note how far %s is: %s", self._partial, error)
            except Exception:  # of `before_journal`
                keep = False
        self._close(ignore_errors=True)
        if not keep:
            shutil.rmtree(self._partial, ignore_errors=True)

    def _write_journal(self) -> None:
        self._before_journal()
        for file in self._files():
            file.sync()
        journal = {
            "dtype": self._dtype.str,
            "state": self._state,
            "notes": self.notes,
            "checksums": self._checksums(),
        }
        write_whole(self._partial / _JOURNAL, json.dumps(journal) + "\n")
        self._journal_due = time.monotonic() + self._every

    def _take_up(self) -> bool:
        """Continue what lies there; false if nothing does that could be continued."""
        try:
            journal = json.loads((self._partial / _JOURNAL).read_text())
            if journal["dtype"] != self._dtype.str:
                return False
            state = _State(*journal["state"])
            self._open("r+b")
            self._values.cut_to(state.num_values)
            self._offsets.cut_to(state.length + 1)
            self._num_tokens.cut_to(state.length)
            # Version 1.5 noted none.
            if journal.get("checksums", self._checksums()) != self._checksums():
                logger.warning(
                    "%s is damaged: the corpus is tokenised from its begin.", self._partial
                )
                return False
            self._state, self.notes = state, dict(journal["notes"])
        except (OSError, ValueError, TypeError, KeyError):  # no journal, or not one of ours
            return False
        return True

    def _open(self, mode: str) -> None:
        self._values = _ArrayFile(self._partial / _VALUES, self._dtype, mode)
        self._offsets = _ArrayFile(self._partial / _OFFSETS, np.dtype(np.int64), mode)
        self._num_tokens = _ArrayFile(self._partial / _NUM_TOKENS, np.dtype(np.int64), mode)

    def _checksums(self) -> dict[str, str]:
        return {file.name: file.checksums for file in self._files()}

    def _files(self) -> tuple[_ArrayFile, ...]:
        return self._offsets, self._num_tokens, self._values

    def _close(self, ignore_errors: bool = False) -> None:
        for file in self._files():
            try:
                file.close()
            except OSError:
                if not ignore_errors:
                    raise


class _ArrayFile:
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
            return self._begin, _checksums(file.read(self._begin)), self.checksums

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


def _checksums(data: bytes) -> str:
    hasher = BlockHasher()
    hasher.update(data)
    return hasher.checksums


def _read_header(file: BinaryIO) -> tuple[np.dtype, int]:
    """The dtype of a 1-D `.npy` file, and the byte at which its values begin."""
    version = np.lib.format.read_magic(file)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    return read(file)[2], file.tell()
