"""Reading of word vectors from text files of GloVe and fastText, with a cache of arrays on disk.

Each line has a word and d numbers, separated by single spaces; the first line of fastText gives the
number of words and d. A file is parsed once; its array is cached and mapped into memory.
"""

import codecs
import gzip
import itertools
import json
import logging
import lzma
import os
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from filelock import FileLock
from tqdm.auto import tqdm

from declutr.corpus.compressed_files import BZ2, XZ, opened_frames
from declutr.inference.sources.source import EncoderError
from declutr.system.cache_folder import default_cache_dir, mark_in_use
from declutr.system.files import CheckedFile, DamagedFile, file_checksums

logger = logging.getLogger(__name__)

_LAYOUT = 1  # to be increased when the cached files change
_CHECKSUMS = "checksums.json"
_LINES = 4096  # the number of lines that are parsed at once
_FRAMES = {b"\xfd7": XZ, b"BZ": BZ2}
_LARGEST = float(np.finfo(np.float32).max)


class WordVectorTable(NamedTuple):
    """A table of words and their vectors in the order of the file, usually by falling frequency."""

    row: dict[str, int]
    """The row of each word. If a word occurs twice in the file, its first row counts."""
    vectors: np.ndarray
    """The vectors `(words, d)`, float32, mapped from disk."""
    checked: CheckedFile | None
    """The file of the vectors with its checksums; `None` if release 1.5 cached it without any."""

    def vectors_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors `(k, d)` of rows `(k,)`.

        `EncoderError` is raised if they are damaged; they are removed, and read anew at next start.
        """
        if self.checked is not None and len(rows):
            size = self.vectors.shape[1] * self.vectors.itemsize
            try:
                self.checked.require_each(rows * size, size)
            except DamagedFile as error:
                shutil.rmtree(self.checked.path.parent, ignore_errors=True)
                raise EncoderError(f"{error} Start again: the words are read anew.") from error
        return self.vectors[rows]


def open_word_vectors(file: Path, digest: str) -> WordVectorTable:
    """Return the table of a file of word vectors, from the cache if the file was parsed before.

    # Parameters

    file : a text file, plain or compressed with gzip, xz or bzip2.
    digest : a digest of the content of the file, under which it is cached.

    # Raises

    `EncoderError` : the file holds no word vectors or ends too early; the message gives the line.
    """
    cache = default_cache_dir() / "word-vectors"
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"{digest[:32]}-{_LAYOUT}"
    with FileLock(f"{kept}.lock"):  # only one of several processes parses the file
        checked = _checked(kept)
        if not kept.exists():
            with tempfile.TemporaryDirectory(prefix="unfinished-", dir=cache) as beside:
                _convert(file, Path(beside))
                os.replace(beside, kept)
            checked = _checked(kept)
        count, width = json.loads((kept / "shape.json").read_text())
        vectors = np.memmap(kept / "vectors.f32", dtype="<f4", mode="r", shape=(count, width))
        mark_in_use(kept / "shape.json", vectors)
    words = (kept / "words.txt").read_bytes().decode().split("\n")[:count]
    row: dict[str, int] = {}
    for number, word in enumerate(words):
        row.setdefault(word, number)
    return WordVectorTable(row, vectors, checked)


def _checked(kept: Path) -> CheckedFile | None:
    """Return the cached vectors with checksums, or `None`; remove the cache if it is damaged."""
    try:
        sums = json.loads((kept / _CHECKSUMS).read_text())
        for name in ("words.txt", "shape.json"):
            CheckedFile(kept / name, sums[name]).require_all()
        return CheckedFile(kept / "vectors.f32", sums["vectors.f32"])
    except FileNotFoundError:  # nothing is cached yet, or release 1.5 cached it
        return None
    except (DamagedFile, ValueError, KeyError, TypeError) as error:
        logger.warning("'%s' is damaged (%s), and is read anew.", kept, error)
        shutil.rmtree(kept)
        return None


def _convert(file: Path, folder: Path) -> None:
    """Parse a file, and write its words, vectors, shape and checksums into a folder."""
    total = file.stat().st_size
    with (
        file.open("rb") as raw,
        (folder / "words.txt").open("w", encoding="utf-8", newline="") as words,
        (folder / "vectors.f32").open("wb") as vectors,
        tqdm(
            total=total, desc=f"reading {file.name}", unit="B", unit_scale=True,
            disable=total < 10**7, leave=False,
        ) as bar,
    ):  # fmt: skip
        parser = _Parser(file)
        unpacked = _unpacked(file, raw)  # closes the file with it
        lines = _lines(file, unpacked)
        while block := list(itertools.islice(lines, _LINES)):
            bar.update(raw.tell() - bar.n)  # for a compressed file, its compressed bytes
            found, numbers = parser.parse(block)
            words.writelines(f"{word}\n" for word in found)
            vectors.write(numbers.astype("<f4").tobytes())
        parser.finish()
    (folder / "shape.json").write_text(json.dumps([parser.words, parser.width]))
    sums = {file.name: file_checksums(file) for file in sorted(folder.iterdir())}
    (folder / _CHECKSUMS).write_text(json.dumps(sums))


def _unpacked(file: Path, raw: BinaryIO) -> Any:
    """Return the decompressed bytes of an open file, which may be compressed."""
    magic = raw.read(2)
    raw.seek(0)
    if magic == b"PK":
        raise EncoderError(f"'{file}' is a zip archive; unpack it and give the file inside.")
    if magic == b"\x1f\x8b":
        return gzip.open(raw)
    return opened_frames(raw, *_FRAMES[magic]) if magic in _FRAMES else raw


def _lines(file: Path, unpacked: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, and raise `EncoderError` where its compressed bytes are broken."""
    try:
        yield from unpacked
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise EncoderError(
            f"'{file}' cannot be read to its end: {error}. It is not complete; download it again."
        ) from error


class _Parser:
    """A parser of lines, which counts `words` and learns the `width` of vectors."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._line = self.words = self.width = 0  # _line: the lines of earlier blocks
        self._promised: int | None = None

    def parse(self, block: list[bytes]) -> tuple[list[str], np.ndarray]:
        """Return the words of a block of lines, and their vectors `(words, d)`."""
        if not self._line:
            block = self._begin(block)
        heads, tails = [], []
        for number, line in enumerate(block, start=self._line + 1):
            line = line.rstrip()  # fastText ends each line with a space
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
        """Raise `EncoderError` if the file was not complete."""
        if not self.words:
            raise EncoderError(f"'{self._file}' holds no word vectors.")
        if self._promised not in (None, self.words):
            raise EncoderError(
                f"'{self._file}' is not complete: its first line promises {self._promised} words, "
                f"there are {self.words}. Download it again, or correct that line."
            )

    def _begin(self, block: list[bytes]) -> list[bytes]:
        """Learn the width from the first line; return the block without a header line."""
        block = [block[0].removeprefix(codecs.BOM_UTF8), *block[1:]]
        first = block[0].split()
        if b"\0" in block[0]:
            raise EncoderError(
                f"'{self._file}' is a binary file; expected word vectors as text: a word and its "
                "numbers on each line."
            )
        if len(first) == 2 and all(part.isdigit() for part in first):
            self._promised, self.width = map(int, first)
            self._line, block = 1, block[1:]
        else:
            self.width = len(first) - 1
        if self.width < 1:
            raise self._broken(1, f"expected a word and its numbers, got {_start(block[0])}")
        return block

    def _irregular(self, number: int, line: bytes) -> tuple[bytes, bytes]:
        """Split a line whose word has spaces in it, as a few words of GloVe have."""
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
        with warnings.catch_warnings():  # of invalid numbers, an error since numpy 2.3
            warnings.simplefilter("error", DeprecationWarning)
            try:
                numbers = np.fromstring(b" ".join(tails).decode("latin-1"), np.float32, sep=" ")
            except (ValueError, DeprecationWarning):  # it is found just below
                numbers = np.empty(0, np.float32)
        if len(numbers) != len(tails) * self.width or not np.isfinite(numbers).all():
            for number, tail in enumerate(tails, start=self._line + 1):
                for part in tail.split(b" "):
                    if not _is_number(part):
                        raise self._broken(number, f"expected a finite number, got {_start(part)}")
            # Python parses some numbers that numpy does not.
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
