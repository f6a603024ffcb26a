"""Lines of text files, plain or compressed: formats, encodings and line ends.

A line ends with a line feed, or with a carriage return and a line feed, and with nothing else, so
that lines are those that `wc -l` and other tools count. A carriage return alone stays in its line.
"""

import codecs
import io
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from declutr.corpus import SourceError
from declutr.corpus.compressed_files import open_bytes, uncompressed_name
from declutr.system.files import appearance

logger = logging.getLogger("declutr.corpus.documents")  # All messages on a corpus have one name.

_Row = TypeVar("_Row")

TABLES = {"csv": ",", "tsv": "\t"}
"""The formats with a header and columns, and the delimiters of their fields."""

_FORMATS = {
    ".json": "json", ".jsonl": "lines", ".ndjson": "lines", ".parquet": "parquet", ".csv": "csv",
    ".tsv": "tsv",
}  # fmt: skip
_REPLACEMENT, _MARK = "\ufffd", "\ufeff"
# These are the kinds of unusual lines that are read and logged.
_REPLACED = "U+FFFD, most often for bytes that are not valid UTF-8"
_RETURN = "a carriage return, which does not end a line"
_MARKED = (
    "a byte order mark at their begin, which stays in the text, as where files were joined "
    r"(sed 's/^\xEF\xBB\xBF//' OLD > NEW removes it)"
)

HEAD = 4096
"""The number of bytes that `encoding_of` needs, unless the file is shorter."""

# UTF-32 comes first, because its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_TAR, _TAR_AT = b"ustar", 257
_ARROW = (b"\xff\xff\xff\xff", b"ARROW1")  # a stream, which `datasets` writes, and a file
# One NUL byte in ten is far more than the stray ones of a text, and far fewer than UTF-16 has.
_NUL_SHARE = 10


def marked_encoding(head: bytes) -> str | None:
    """Return `"utf-16"` or `"utf-32"` if the bytes begin with its byte order mark, else `None`."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def encoding_of(head: bytes, name: Path | str) -> str:
    """Return the Python codec of a text: `"utf-8-sig"`, `"utf-16"` or `"utf-32"`.

    Each of them drops a byte order mark. The mark decides the encoding. A text without one is
    UTF-8, valid or not, unless it has many NUL bytes, as UTF-16 has.

    # Parameters

    head : the first `HEAD` bytes, decompressed.
    name : the name of the file in messages.

    # Raises

    `SourceError` : if there are many NUL bytes and no mark, or it is a tar archive or Arrow.
    """
    marked = marked_encoding(head)
    if marked:
        return marked
    if head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        raise SourceError(f"'{name}' is a tar archive. Unpack it, and give the folder.")
    if head.startswith(_ARROW):
        raise SourceError(
            f"'{name}' is an Arrow file, as save_to_disk of datasets writes. Write it as parquet: "
            "datasets.load_from_disk(folder).to_parquet('docs.parquet')."
        )
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
        codecs.getincrementaldecoder("utf-8")().decode(head)  # The last character may be cut.
    except UnicodeDecodeError:
        return False
    return True


def file_format(file: Path) -> str:
    """Return the format of a file, told from its name.

    It is `"lines"` (JSON lines), `"json"`, `"parquet"`, `"csv"`, `"tsv"` or `"text"`. A compression
    suffix does not count, and of a zip archive, the name of the file in it does. `.json` files hold
    lines or an array.

    >>> file_format(Path("documents.jsonl.gz"))
    'lines'

    # Raises

    `SourceError` : if a zip archive holds another number of files than one.
    """
    return _FORMATS.get(uncompressed_name(file).suffix.lower(), "text")


def open_text(file: Path, errors: str) -> io.TextIOWrapper:
    """Open a file, plain or compressed, as text; see `decoded` for `errors` and what it raises."""
    return decoded(open_bytes(file), errors, file)


def decoded(stream: Any, errors: str, name: Path | str) -> io.TextIOWrapper:
    """Return a stream of bytes as text, in the encoding that its first bytes tell.

    The text has no byte order mark, and only line feeds end its lines.

    # Parameters

    stream : bytes, decompressed; it need not be seekable.
    errors : as in Python's `open`.
    name : the name of the stream in messages.

    # Raises

    `SourceError` : if the stream is not text, or UTF-16 or UTF-32 without a byte order mark.
    """
    stream = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
    encoding = encoding_of(stream.peek(HEAD)[:HEAD], name)
    return io.TextIOWrapper(stream, encoding=encoding, errors=errors, newline="\n")


def read_lines(file: Path, encoding_errors: str = "strict", ends: bool = False) -> Iterator[str]:
    """Yield every line of a file as text, whatever format its name means.

    # Parameters

    file : the file, plain or compressed.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    ends : whether lines keep their ends.

    # Raises

    `SourceError` : if the file cannot be read.
    """
    return noted_lines(_lines(file, encoding_errors), file, encoding_errors, ends)


def _lines(file: Path, encoding_errors: str) -> Iterator[str]:
    with telling_what_fails(file, "text"), open_text(file, encoding_errors) as lines:
        yield from lines


@contextmanager
def telling_what_fails(file: Path, kind: str) -> Iterator[None]:
    """Raise `SourceError` for any exception in the block, which reads `file` as format `kind`."""
    try:
        yield
    except SourceError:
        raise
    except UnicodeDecodeError as error:
        raise undecodable(file, error) from error
    except Exception as error:  # Parsers and decompressors raise all kinds.
        raise SourceError(f"'{file}' could not be read as {kind}: {error}") from error


def telling_of_changes(file: Path, rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield the rows of a file, and warn if it changed meanwhile, as a file that still grows."""
    before = _seen(file)
    yield from rows
    if _seen(file) != before:
        logger.warning(
            "'%s' changed while it was being read: its last row may be cut off, or rows be of "
            "different times. Start again when nothing writes to it.",
            file,
        )


def _seen(file: Path) -> tuple[int, ...]:
    """Return the size and the time of the last change of the content; nothing if it is gone."""
    try:
        return appearance(file)[:2]
    except OSError:  # its reader tells
        return ()


def noted_lines(
    lines: Iterable[str], name: Path | str, errors: str, ends: bool = False
) -> Iterator[str]:
    """Yield the lines of a file, and log what is unusual about them, once per file.

    # Parameters

    lines : the lines with their ends.
    name, errors : the name of the file in messages, and how it was decoded.
    ends : whether lines keep their ends.

    # Raises

    `SourceError` : if there are carriage returns but no line feed, as in files of old Macs.
    """
    counts: Counter[str] = Counter()
    first: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if line.startswith(_MARK):
            counts[_MARKED] += 1
            first.setdefault(_MARKED, number)
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
    for what in filter(first.get, (_REPLACED, _RETURN, _MARKED)):
        logger.warning(
            "'%s': %d line(s) hold %s; the first is line %d.", name, counts[what], what, first[what]
        )


def undecodable(file: Path, error: UnicodeDecodeError) -> SourceError:
    """Return the error for a file that is not valid in its encoding.

    For UTF-8, it names the place of the first invalid byte.
    """
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
    """Return the line and byte (both from 1) of the first byte sequence that is not UTF-8."""
    # With "surrogateescape", bytes that are not UTF-8 become lone surrogates.
    with io.TextIOWrapper(open_bytes(file), "utf-8", "surrogateescape", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            for column, character in enumerate(line):
                if "\udc80" <= character <= "\udcff":
                    return number, len(line[:column].encode("utf-8")) + 1
    raise AssertionError(f"{file} decodes as UTF-8")
