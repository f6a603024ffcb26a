"""Word vectors as GloVe and fastText publish them, as an array on disk.

A file has a word and d numbers a line, separated by single spaces; fastText's begins with a line of
two numbers, how many words there are and d. It is read once. What comes of it lies in the cache of
this package, under the digest of the file: an array that is mapped into memory and not loaded, so
that memory holds the vectors of words that occur, not those of two million.
"""

from __future__ import annotations

import bz2
import gzip
import json
import logging
import lzma
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from filelock import FileLock
from tqdm.auto import tqdm

from declutr.inference.sources.source import EncoderError
from declutr.inference.sources.word_vector_parser import Parser
from declutr.system.files import CheckedFile, DamagedFile, default_cache_dir, file_checksums

logger = logging.getLogger(__name__)

_LAYOUT = 1  # raise it when what is kept changes
_CHECKSUMS = "checksums.json"
_LINES = 4096  # parsed at once
_PACKED = {b"\x1f\x8b": gzip.open, b"\xfd7": lzma.open, b"BZ": bz2.open}


class WordVectorTable(NamedTuple):
    """Words and their vectors, in the order of the file: the most frequent first, as a rule."""

    row: dict[str, int]
    vectors: np.ndarray
    """`(words, d)`, float32, on disk. Of a word that comes twice, the first counts."""
    checked: CheckedFile | None
    """What compares the vectors with their checksums; `None` for what version 1.5 kept."""

    def vectors_of(self, rows: np.ndarray) -> np.ndarray:
        """The vectors `(k, d)` of rows `(k,)`.

        # Raises

        `EncoderError` : they are not as they were kept. The next start reads the file again.
        """
        if self.checked is not None and len(rows):
            size = self.vectors.shape[1] * self.vectors.itemsize
            try:
                self.checked.require_each(rows * size, size)
            except DamagedFile as error:
                shutil.rmtree(self.checked.path.parent, ignore_errors=True)
                raise EncoderError(
                    f"{error} Start again: the word vectors are read anew."
                ) from error
        return self.vectors[rows]


def open_word_vectors(file: Path, digest: str, progress: bool = True) -> WordVectorTable:
    """The table of `file`, whose content has this digest; read now if it never was.

    # Raises

    `EncoderError` : the file does not hold word vectors, or ends too early; the line is named.
    """
    cache = default_cache_dir() / "word-vectors"
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"{digest[:32]}-{_LAYOUT}"
    with FileLock(f"{kept}.lock"):  # of several processes, one reads
        checked = _checked(kept)
        if not kept.exists():
            beside = Path(tempfile.mkdtemp(prefix="unfinished-", dir=cache))
            try:
                _convert(file, beside, progress)
                os.replace(beside, kept)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
            checked = _checked(kept)
    count, width = json.loads((kept / "shape.json").read_text())
    vectors = np.memmap(kept / "vectors.f32", dtype="<f4", mode="r", shape=(count, width))
    words = (kept / "words.txt").read_bytes().decode().split("\n")[:count]
    row: dict[str, int] = {}
    for number, word in enumerate(words):
        row.setdefault(word, number)
    return WordVectorTable(row, vectors, checked)


def _checked(kept: Path) -> CheckedFile | None:
    """What compares vectors that are kept with their checksums; what is damaged is removed."""
    try:
        sums = json.loads((kept / _CHECKSUMS).read_text())
        for name in ("words.txt", "shape.json"):
            CheckedFile(kept / name, sums[name]).require_all()
        return CheckedFile(kept / "vectors.f32", sums["vectors.f32"])
    except FileNotFoundError:  # there is nothing yet, or version 1.5 kept it
        return None
    except (DamagedFile, ValueError, KeyError, TypeError) as error:
        logger.warning("'%s' is damaged (%s), and is read anew.", kept, error)
        shutil.rmtree(kept)
        return None


def _convert(file: Path, folder: Path, progress: bool) -> None:
    """Write words, vectors and their shape into `folder`."""
    with (
        _lines(file, progress) as lines,
        (folder / "words.txt").open("w", encoding="utf-8", newline="") as words,
        (folder / "vectors.f32").open("wb") as vectors,
    ):
        parser = Parser(file)
        for block in _blocks(lines):
            found, numbers = parser.parse(block)
            words.writelines(f"{word}\n" for word in found)
            vectors.write(numbers.astype("<f4").tobytes())
        parser.finish()
    (folder / "shape.json").write_text(json.dumps([parser.words, parser.width]))
    sums = {file.name: file_checksums(file) for file in sorted(folder.iterdir())}
    (folder / _CHECKSUMS).write_text(json.dumps(sums))


@contextmanager
def _lines(file: Path, progress: bool) -> Iterator[Iterator[bytes]]:
    """The lines of a file, packed or not; the bar shows bytes read from disk."""
    with file.open("rb") as raw:
        start = raw.read(6)
        raw.seek(0)
        if start[:2] == b"PK":
            raise EncoderError(f"'{file}' is a zip archive; unpack it and give the file inside.")
        unpack = next((opened for magic, opened in _PACKED.items() if start[:2] == magic), None)
        stream: IO[bytes] = unpack(raw) if unpack else raw  # type: ignore[operator]
        total = file.stat().st_size
        with tqdm(
            total=total, desc=f"reading {file.name}", unit="B", unit_scale=True,
            disable=not progress or total < 10**7, leave=False,
        ) as bar:  # fmt: skip

            def lines() -> Iterator[bytes]:
                try:
                    for number, line in enumerate(stream):
                        if not number % _LINES:
                            bar.update(raw.tell() - bar.n)
                        yield line
                except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
                    raise EncoderError(
                        f"'{file}' cannot be read to its end: {error}. It is not complete; "
                        "download it again."
                    ) from error

            yield lines()


def _blocks(lines: Iterator[bytes]) -> Iterator[list[bytes]]:
    block = []
    for line in lines:
        block.append(line)
        if len(block) == _LINES:
            yield block
            block = []
    if block:
        yield block
