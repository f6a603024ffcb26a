"""Lines of text on disk, found by their number: the text end to end, and where each line begins."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np

from declutr.corpus.text_inputs import no_text
from declutr.search.index_files import OFFSETS, TEXT, SearchError
from declutr.system.files import CheckedFile, DamagedFile

_OFFSET = np.dtype("<i8")
_BUFFERED = 1 << 16  # offsets
_BLOCK = 4 << 20  # bytes of text read at a time


def write_lines(lines: Iterable[str], folder: Path) -> int:
    """Write lines into two files of `folder`, in place of others; how many they were.

    The files of lines that were there are replaced when all lines are written. Lines may hold any
    character, line ends included.
    """
    beside = [folder / f"{name}.{os.getpid()}.new" for name in (TEXT, OFFSETS)]
    try:
        with open(beside[0], "wb") as text, open(beside[1], "wb") as offsets:
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
    """What `write_lines` wrote. Memory is that of the lines asked for.

        lines = StoredLines(folder)
        lines[7]  # from 0

    # Parameters

    folder : where the files are.
    checksums : of the two files, by their names, to compare what is read with; those of the text
        where it is read.

    # Raises

    `SearchError` : files are missing, do not go together, or are damaged.
    """

    def __init__(self, folder: Path, checksums: Mapping[str, str] | None = None) -> None:
        self._path = folder / TEXT
        self._checked: CheckedFile | None = None
        try:
            if checksums:
                CheckedFile(folder / OFFSETS, checksums[OFFSETS]).require_all()
                self._checked = CheckedFile(self._path, checksums[TEXT])
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
        if not 0 <= row < len(self):
            raise IndexError(f"There is no line {row} among {len(self):,} (from 0).")
        start, end = self._offsets[row : row + 2].tolist()
        self._require(start, end)
        with open(self._path, "rb") as text:
            text.seek(start)
            return _decoded(text.read(end - start))

    def __iter__(self) -> Iterator[str]:
        with open(self._path, "rb") as text:
            row = 0
            while row < len(self):
                start = int(self._offsets[row])
                # As many whole lines as fit in a block, and at least one.
                last = int(np.searchsorted(self._offsets, start + _BLOCK, side="right")) - 1
                last = min(max(last, row + 1), len(self))
                cuts = (self._offsets[row : last + 1] - start).tolist()
                self._require(start, start + cuts[-1])
                content = text.read(cuts[-1])
                for begin, end in pairwise(cuts):
                    yield _decoded(content[begin:end])
                row = last

    def _require(self, start: int, end: int) -> None:
        """See that this part of the text is as it was written."""
        if self._checked is not None:
            try:
                self._checked.require(start, end)
            except DamagedFile as error:
                raise SearchError(f"{error} Repeat the command that built the index.") from error

    def blank(self) -> np.ndarray:
        """The numbers of lines that hold white space at most, rising."""
        return np.array([row for row, line in enumerate(self) if not line.strip()], dtype=np.int64)


def _decoded(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")
