"""Text files as lines, plain or compressed: their names, their encodings, and where a line ends.

A line ends with a line feed, or with a carriage return and a line feed, and with nothing else: so
lines are those that `wc -l` and other tools count. A carriage return alone stays in its line.
"""

from __future__ import annotations

import codecs
import io
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from declutr.corpus import SourceError

logger = logging.getLogger("declutr.corpus.documents")  # one name for all that is said of a corpus

COMPRESSIONS = {".gz", ".bz2", ".xz", ".zst", ".lz4"}
TABLES = {"csv": ",", "tsv": "\t"}
"""Formats with a header and columns, and what stands between their fields."""

_FORMATS = {
    ".json": "json", ".jsonl": "lines", ".ndjson": "lines", ".parquet": "parquet", ".csv": "csv",
    ".tsv": "tsv",
}  # fmt: skip
_REPLACEMENT = "\ufffd"
# What is odd about lines that are read all the same.
_REPLACED = "U+FFFD where bytes were not valid UTF-8"
_RETURN = "a carriage return, which does not end a line"

HEAD = 4096
"""How many bytes are enough to tell; fewer do where a file has no more."""

# UTF-32 first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NUL_SHARE = 10  # one byte in so many: far more than stray ones in text, far fewer than in UTF-16

# The names that downloaded files have at their URLs: they tell the format, the cache's do not.
NAMES: dict[Path, str] = {}


def marked_encoding(head: bytes) -> str | None:
    """`"utf-16"` or `"utf-32"`, if a byte order mark at the begin says so."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def encoding_of(head: bytes, name: Path | str) -> str:
    """The Python codec of a text: `"utf-8-sig"`, `"utf-16"` or `"utf-32"`; each drops the mark.

    A byte order mark decides. Without one it is UTF-8, whether valid or not, unless it is full of
    NUL bytes, as UTF-16 is.

    # Parameters

    head : the first `HEAD` bytes, decompressed.
    name : of the file, for messages.

    # Raises

    `SourceError` : many NUL bytes and no mark.
    """
    marked = marked_encoding(head)
    if marked:
        return marked
    nuls = head.count(0)
    if nuls > 1 and (nuls * _NUL_SHARE >= len(head) or not _begins_as_utf8(head)):
        raise SourceError(
            f"'{name}' has {nuls} NUL bytes among its first {len(head)} and no byte order mark: it "
            "is UTF-16 or UTF-32, or no text at all. Expected UTF-8: convert it with "
            "`iconv -f UTF-16LE -t UTF-8 OLD > NEW` (or UTF-16BE, UTF-32LE, UTF-32BE)."
        )
    return "utf-8-sig"


def _begins_as_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut
    except UnicodeDecodeError:
        return False
    return True


def file_format(file: Path) -> str:
    """`"lines"` (of JSON), `"json"`, `"parquet"`, `"csv"`, `"tsv"` or `"text"`, told from the name.

    A compression suffix does not count. `.json` files hold lines or an array.
    """
    suffixes = [suffix.lower() for suffix in Path(NAMES.get(file, file)).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1], "text") if suffixes else "text"


def open_bytes(file: Path) -> BinaryIO:
    """A file for reading, decompressed."""
    import fsspec

    return fsspec.filesystem("file").open(str(file), "rb", compression=_compression(file))


def is_compressed(file: Path) -> bool:
    """Whether `open_bytes` decompresses it, told from the name."""
    return _compression(file) is not None


def _compression(file: Path) -> str | None:
    from fsspec.utils import infer_compression

    return infer_compression(NAMES.get(file, str(file)))


def open_text(file: Path, errors: str) -> io.TextIOWrapper:
    """A file for reading as text, its byte order mark left out; lines end as this module says.

    # Raises

    `SourceError` : it is UTF-16 or UTF-32 without a byte order mark, or no text.
    """
    return decoded(open_bytes(file), errors, file)


def decoded(stream: Any, errors: str, name: Path | str) -> io.TextIOWrapper:
    """A stream of bytes as text; its first bytes tell the encoding and need not be read again."""
    stream = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
    encoding = encoding_of(stream.peek(HEAD)[:HEAD], name)
    return io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline="\n")


def read_lines(file: Path, encoding_errors: str = "strict", ends: bool = False) -> Iterator[str]:
    """Every line of a file, whatever its name stands for; without line ends, unless told `ends`.

    # Raises

    `SourceError` : a file that cannot be read.
    """
    return noted_lines(_lines(file, encoding_errors), file, encoding_errors, ends)


def _lines(file: Path, encoding_errors: str) -> Iterator[str]:
    with telling_what_fails(file, "text"), open_text(file, encoding_errors) as lines:
        yield from lines


@contextmanager
def telling_what_fails(file: Path, kind: str) -> Iterator[None]:
    """Raises `SourceError` for whatever goes wrong inside, while a file is read as this `kind`."""
    try:
        yield
    except SourceError:
        raise
    except UnicodeDecodeError as error:
        raise undecodable(file, error) from error
    except Exception as error:  # whatever a parser or decompressor raises
        raise SourceError(f"'{file}' could not be read as {kind}: {error}") from error


def noted_lines(
    lines: Iterable[str], name: Path | str, errors: str, ends: bool = False
) -> Iterator[str]:
    """The lines of a file. What is odd about some of them is logged, once for a file.

    # Parameters

    lines : with their ends.
    name, errors : of the file, and of its decoding.
    ends : whether they keep their ends.

    # Raises

    `SourceError` : carriage returns and not one line feed, as in files of old Macs.
    """
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        text = line.removesuffix("\n").removesuffix("\r")
        if errors == "replace" and _REPLACEMENT in text:
            counts[_REPLACED] += 1
            first.setdefault(_REPLACED, number)
        if "\r" in text:
            counts[_RETURN] += 1
            first.setdefault(_RETURN, number)
            if number == 1 and not line.endswith("\n"):
                raise SourceError(
                    f"'{name}' has {text.count(chr(13))} carriage return(s) and no line feed, so "
                    "that all of it is one line. Expected lines that end with a line feed: convert "
                    r"it with `tr '\r' '\n' < OLD > NEW`."
                )
        yield line if ends else text
    for what in filter(first.get, (_REPLACED, _RETURN)):
        logger.warning(
            "'%s': %d line(s) hold %s; the first is line %d.", name, counts[what], what, first[what]
        )


def undecodable(file: Path, error: UnicodeDecodeError) -> SourceError:
    """The error of a file that is not valid in its encoding; of UTF-8 with the place."""
    if not error.encoding.startswith("utf-8"):
        return SourceError(
            f"'{file}' begins with a byte order mark of {error.encoding.upper()[:6]}, but is not "
            f"valid ({error.reason}). Convert the file to UTF-8, or set encoding_errors to "
            "'replace' on the reader."
        )
    line, column = _first_undecodable(file)
    return SourceError(
        f"'{file}', line {line}: byte {column} is not valid UTF-8 ({error.reason}). Convert the "
        "file to UTF-8, or set encoding_errors to 'replace' on the reader."
    )


def _first_undecodable(file: Path) -> tuple[int, int]:
    """Line and byte (both from 1) of the first byte sequence that is not UTF-8."""
    # Bytes that are not UTF-8 become lone surrogates.
    with io.TextIOWrapper(open_bytes(file), "utf-8", "surrogateescape", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            for column, character in enumerate(line):
                if "\udc80" <= character <= "\udcff":
                    return number, len(line[:column].encode("utf-8")) + 1
    raise AssertionError(f"{file} decodes as UTF-8")
