"""Storage of lines of text on disk with access by number.

One file holds the text of all lines end to end, another the offset at which each line begins.
"""

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np

from declutr.corpus.text_inputs import no_text
from declutr.search.index_files import OFFSETS, TEXT, SearchError
from declutr.system.files import CheckedFile, DamagedFile, appearance, named_if_full

_OFFSET = np.dtype("<i8")
_BUFFERED = 1 << 16  # offsets that are kept in memory before they are written
_BLOCK = 4 << 20  # bytes of text that are read at a time


def write_lines(lines: Iterable[str], folder: Path) -> int:
    """Write lines to two files in `folder` and return their number.

    Earlier files are replaced when all lines are written.

    # Parameters

    lines : any strings; they may contain any characters, including line ends.
    folder : an existing folder.

    # Raises

    `TypeError` : if a line is not a string.
    """
    beside = [folder / f"{name}.{os.getpid()}.new" for name in (TEXT, OFFSETS)]
    try:
        with (
            named_if_full(folder),
            open(beside[0], "wb") as text,
            open(beside[1], "wb") as offsets,
        ):
            end, ends = 0, array("q", [0])
            count = 0
            for line in lines:
                if not isinstance(line, str):
                    raise no_text(line, count)
                end += text.write(line.encode("utf-8", "surrogatepass"))
                ends.append(end)
                count += 1
                if len(ends) == _BUFFERED:
                    offsets.write(np.array(ends, dtype=_OFFSET).tobytes())
                    ends = array("q")
            offsets.write(np.array(ends, dtype=_OFFSET).tobytes())
        for written, name in zip(beside, (TEXT, OFFSETS), strict=True):
            os.replace(written, folder / name)
        return count
    finally:
        for file in beside:
            file.unlink(missing_ok=True)


class StoredLines:
    """The lines that `write_lines` wrote, read from disk on access.

        lines = StoredLines(folder)
        lines[7]  # from 0

    # Parameters

    folder : the folder of the two files.
    checksums : the checksums of the two files by name, or nothing to skip verification. Text is
        verified when it is read, and again if its file is another one by then.

    # Raises

    `SearchError` : if files are missing, do not belong together, or are damaged; when text is read,
        also that its file was replaced by one with other lines.
    """

    def __init__(self, folder: Path, checksums: Mapping[str, str] | None = None) -> None:
        self._path = folder / TEXT
        self._checked: CheckedFile | None = None
        self._sums = checksums[TEXT] if checksums else ""
        try:
            if checksums:
                CheckedFile(folder / OFFSETS, checksums[OFFSETS]).require_all()
                self._checked = CheckedFile(self._path, self._sums)
            self._file = appearance(self._path)
            self._offsets = np.memmap(folder / OFFSETS, dtype=_OFFSET, mode="r")  # (n + 1,)
            fits = int(self._offsets[-1]) == self._path.stat().st_size
        except (OSError, ValueError) as error:
            raise SearchError(
                f"'{folder}' does not hold the lines of an index ({error}). Build it again with "
                "`declutr index`."
            ) from error
        if not fits:
            raise SearchError(
                f"'{self._path}' was changed after it was indexed. Build the index again with "
                "`declutr index`."
            )

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: int) -> str:
        return self.texts([row])[0]

    def texts(self, rows: Iterable[int]) -> list[str]:
        """Return the lines of these numbers; the file is opened once for all of them."""
        with self._opened() as text:
            return [self._read(text, row) for row in rows]

    def _read(self, text: BinaryIO, row: int) -> str:
        if not 0 <= row < len(self):
            raise IndexError(f"There is no line {row} among {len(self):,} (from 0).")
        start, end = self._offsets[row : row + 2].tolist()
        self._require(start, end)
        text.seek(start)
        return _decoded(text.read(end - start))

    def __iter__(self) -> Iterator[str]:
        with self._opened() as text:
            row = 0
            while row < len(self):
                start = int(self._offsets[row])
                # A block has at least one line, even if the line is longer than a block.
                last = int(np.searchsorted(self._offsets, start + _BLOCK, side="right")) - 1
                last = min(max(last, row + 1), len(self))
                cuts = (self._offsets[row : last + 1] - start).tolist()
                self._require(start, start + cuts[-1])
                content = text.read(cuts[-1])
                for begin, end in pairwise(cuts):
                    yield _decoded(content[begin:end])
                row = last

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        """Open the text, and raise `SearchError` if it is no longer that of these lines."""
        with open(self._path, "rb") as text:
            found = appearance(text.fileno())
            if found != self._file and self._checked is not None:
                try:
                    self._checked = CheckedFile(self._path, self._sums)
                    self._checked.require_all()
                except DamagedFile as error:
                    raise SearchError(
                        f"'{self._path}' was replaced after it was opened, by other lines. Open "
                        "the index again."
                    ) from error
                self._file = found
            yield text

    def _require(self, start: int, end: int) -> None:
        """Raise `SearchError` if the bytes `[start, end)` of the text are damaged."""
        if self._checked is not None:
            try:
                self._checked.require(start, end)
            except DamagedFile as error:
                raise SearchError(f"{error} Repeat the command that built the index.") from error

    def blank(self) -> np.ndarray:
        """Return the numbers of lines that are empty or white space, in ascending order."""
        return np.array([row for row, line in enumerate(self) if not line.strip()], dtype=np.int64)


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")
