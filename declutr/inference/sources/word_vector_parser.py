"""Lines of a word and its numbers to words and vectors."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from declutr.inference.sources.source import EncoderError

_LARGEST = float(np.finfo(np.float32).max)


class Parser:
    """Lines to words and numbers."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._line = 0  # of the file, those of earlier blocks
        self._promised: int | None = None
        self.words = 0
        self.width = 0

    def parse(self, block: list[bytes]) -> tuple[list[str], np.ndarray]:
        """The words of a block, and their vectors `(words, d)`."""
        if not self._line:
            block = self._begin(block)
        heads, tails = [], []
        for number, line in enumerate(block, start=self._line + 1):
            line = line.rstrip()  # fastText ends each with a space
            if not line:
                raise self._broken(number, f"expected a word and {self.width} numbers, got nothing")
            head, _, tail = line.partition(b" ")
            if tail.count(b" ") != self.width - 1:
                head, tail = self._irregular(number, line)
            heads.append(head.decode("utf-8", "replace"))
            tails.append(tail)
        vectors = self._numbers(tails)
        self._line += len(block)
        self.words += len(heads)
        return heads, vectors

    def finish(self) -> None:
        """See that the file was complete."""
        if not self.words:
            raise EncoderError(f"'{self._file}' holds no word vectors.")
        if self._promised not in (None, self.words):
            raise EncoderError(
                f"'{self._file}' is not complete: its first line promises {self._promised} words, "
                f"there are {self.words}. Download it again, or correct that line."
            )

    def _begin(self, block: list[bytes]) -> list[bytes]:
        """Learn the width from the first line, which may say it outright."""
        first = block[0].split()
        if b"\0" in block[0]:
            raise EncoderError(
                f"'{self._file}' is a binary file; expected word vectors as text: a word and its "
                "numbers on each line."
            )
        if len(first) == 2 and all(part.isdigit() for part in first):
            self._promised, self.width = int(first[0]), int(first[1])
            self._line = 1
            block = block[1:]
        else:
            self.width = len(first) - 1
        if self.width < 1:
            raise self._broken(1, f"expected a word and its numbers, got {_start(block[0])}")
        return block

    def _irregular(self, number: int, line: bytes) -> tuple[bytes, bytes]:
        """A line with more fields than usual: a few words of GloVe have spaces in them."""
        parts = line.split(b" ")
        inside = len(parts) - self.width
        if inside < 1 or all(_is_number(part) for part in parts[1:inside]):
            raise self._broken(
                number,
                f"expected a word and {self.width} numbers separated by single spaces, got "
                f"{len(parts)} fields, {_start(line)}",
            )
        return b" ".join(parts[:inside]), b" ".join(parts[inside:])

    def _numbers(self, tails: list[bytes]) -> np.ndarray:
        with warnings.catch_warnings():  # numpy's, of text that is no number: found just below
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                numbers = np.fromstring(b" ".join(tails).decode("latin-1"), np.float32, sep=" ")
            except ValueError:
                numbers = np.empty(0, np.float32)
        if len(numbers) != len(tails) * self.width or not np.isfinite(numbers).all():
            for number, tail in enumerate(tails, start=self._line + 1):
                for part in tail.split(b" "):
                    if not _is_number(part):
                        raise self._broken(number, f"expected a finite number, got {_start(part)}")
            # Numbers that Python reads and numpy does not.
            numbers = np.array([float(part) for tail in tails for part in tail.split(b" ")])
        return numbers.reshape(-1, self.width)

    def _broken(self, line: int, why: str) -> EncoderError:
        return EncoderError(
            f"'{self._file}', line {line}: {why}. The file is broken or not complete; download it "
            "again, or remove that line."
        )


def _is_number(part: bytes) -> bool:
    try:
        return b"_" not in part and abs(float(part)) <= _LARGEST
    except ValueError:
        return False


def _start(text: bytes) -> str:
    shown = text.decode("utf-8", "replace").strip()
    return repr(shown if len(shown) <= 60 else shown[:60] + "...")
