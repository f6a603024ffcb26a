"""Documents from files of any format, one row each, in file order.

Text files hold one document a line; JSON lines, JSON arrays and parquet hold it under a key. Files
are opened and decompressed by `fsspec`; parquet is read by Hugging Face `datasets`. Everything but
a JSON array is streamed: memory stays flat and no second copy of the corpus is written.
"""

from __future__ import annotations

import glob
import io
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TextIO
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike
ENCODING_ERRORS = ("strict", "replace")

_FORMATS = {".json": "json", ".jsonl": "lines", ".ndjson": "lines", ".parquet": "parquet"}
COMPRESSIONS = {".gz", ".bz2", ".xz", ".zst", ".lz4"}
_REPLACEMENT = "\ufffd"
_RECORDS_AT_ONCE = 1024  # of a parquet file, whatever the size of its row groups

# The names that downloaded files have at their URLs: they tell the format, the cache's do not.
_NAMES: dict[Path, str] = {}


class SourceError(ValueError):
    """A corpus that cannot be read: the message names the file, the row and the way out."""


OnBadRow = Callable[[SourceError], None]


def source_files(path: PathLike | Sequence[PathLike]) -> list[Path]:
    """The files behind `path`: a file, a folder (searched recursively), a glob, a URL, or a list.

    Files of a folder or glob come in sorted order, so that row numbers are the same everywhere.
    Raises `SourceError` if nothing is found.
    """
    if path is None:
        raise SourceError("Got no path. Set train_data_path with -o, or in the recipe.")
    if not isinstance(path, (str, os.PathLike)):
        if not path:
            raise SourceError("Got an empty list of files; expected at least one.")
        return [file for part in path for file in source_files(part)]
    text = os.fspath(path)
    if not text:
        raise SourceError("Got an empty path; expected a file, a folder, a glob or a URL.")
    if "://" in text:
        from cached_path import cached_path

        file = Path(cached_path(text))
        _NAMES[file] = PurePosixPath(urlsplit(text).path).name
        return [file]
    expanded = Path(text).expanduser()
    if expanded.is_dir():
        files = sorted(
            file
            for file in expanded.rglob("*")
            if file.is_file()
            and not any(p.startswith(".") for p in file.relative_to(expanded).parts)
        )
    elif expanded.exists():
        files = [expanded]
    else:
        files = sorted(Path(match) for match in glob.glob(str(expanded), recursive=True))
        files = [file for file in files if file.is_file()]
    if not files:
        raise SourceError(
            f"Found no documents at '{text}'. Expected a file with one document a line (plain or "
            "compressed), JSON lines, parquet, a folder of such files, or a glob that matches some."
        )
    return files


def file_format(file: Path) -> str:
    """`"lines"` (of JSON), `"json"`, `"parquet"` or `"text"`, told from the name.

    A compression suffix does not count. `.json` files hold lines or an array.
    """
    suffixes = [suffix.lower() for suffix in Path(_NAMES.get(file, file)).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1], "text") if suffixes else "text"


def read_documents(
    files: Sequence[Path],
    text_key: str = "text",
    encoding_errors: str = "strict",
    on_bad_row: OnBadRow | None = None,
) -> Iterator[str]:
    """Every row of every file, in order; blank rows are kept, as `""`.

    A blank line of a JSON-lines file, and a null document, is a blank row.

    # Parameters

    files : from `source_files`.
    text_key : the key (or column) that holds the document in JSON lines and parquet.
    encoding_errors : what to do with bytes that are not UTF-8 in text files and JSON lines.
        `"strict"` raises `SourceError` with the line number, `"replace"` puts U+FFFD there and
        logs how many rows of a text file.
    on_bad_row : is called with the error of a record that has no document (it is not JSON, not an
        object, has no such key or no string there), and the row is blank; by default the error is
        raised.
    """
    if encoding_errors not in ENCODING_ERRORS:
        raise SourceError(
            f"Unknown encoding_errors '{encoding_errors}': expected one of {ENCODING_ERRORS}."
        )
    for file in files:
        kind = file_format(file)
        if kind == "json" and not _is_array(file, encoding_errors):
            kind = "lines"
        rows = _rows(file, kind, encoding_errors)
        if kind == "text":
            yield from _texts(rows, file, encoding_errors)
        else:
            yield from _documents(rows, kind, file, text_key, on_bad_row)


def read_stream(
    stream: BinaryIO,
    name: str,
    kind: str = "text",
    text_key: str = "text",
    on_bad_row: OnBadRow | None = None,
) -> Iterator[str]:
    """Every row of a stream that is read once, such as standard input, as `read_documents` has it.

    Bytes that are not UTF-8 become U+FFFD.

    # Parameters

    stream : of bytes, not compressed.
    name : of the stream, for messages.
    kind : `"text"`, or `"lines"` of JSON.
    text_key, on_bad_row : as for `read_documents`.
    """
    if kind not in ("text", "lines"):
        raise SourceError(f"A stream holds 'text' or 'lines' (of JSON), got '{kind}'.")
    lines = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace")
    try:
        if kind == "text":
            yield from _texts(lines, name, "replace")
        else:
            yield from _documents(lines, kind, name, text_key, on_bad_row)
    finally:
        lines.detach()  # the stream is not ours to close


def _texts(lines: Iterable[str], file: Path | str, encoding_errors: str) -> Iterator[str]:
    replaced, first = 0, 0
    for number, line in enumerate(lines, start=1):
        if encoding_errors == "replace" and _REPLACEMENT in line:
            replaced, first = replaced + 1, first or number
        yield line.removesuffix("\n")
    if replaced:
        logger.warning(
            "'%s': %d line(s) hold U+FFFD where bytes were not valid UTF-8; the first is line %d.",
            file,
            replaced,
            first,
        )


def _documents(
    rows: Iterable[Any], kind: str, file: Path | str, text_key: str, on_bad_row: OnBadRow | None
) -> Iterator[str]:
    for number, row in enumerate(rows, start=1):
        try:
            text = _document(row, kind, file, number, text_key)
        except SourceError as error:
            if on_bad_row is None:
                raise
            on_bad_row(error)
            text = ""
        yield text


def _document(row: Any, kind: str, file: Path | str, number: int, text_key: str) -> str:
    if kind == "lines":
        if not row.strip():
            return ""
        row = _parsed(row, file, number)
    if not isinstance(row, dict):
        raise SourceError(
            f"'{file}', row {number} is {type(row).__name__}, expected an object with the key "
            f"'{text_key}'."
        )
    if text_key not in row:
        raise SourceError(
            f"'{file}', row {number}: no key '{text_key}'. Found {sorted(row)}; set text_key on "
            "the dataset reader (--text-key of a command) to the one that holds the document."
        )
    text = row[text_key]
    if text is not None and not isinstance(text, str):
        raise SourceError(
            f"'{file}', row {number}: '{text_key}' is {type(text).__name__}, expected a string."
        )
    return text or ""


def _is_array(file: Path, encoding_errors: str) -> bool:
    """Whether a JSON file begins with a bracket; otherwise it holds one object a line."""
    for line in _rows(file, "text", encoding_errors):
        if line.strip():
            return line.lstrip().startswith("[")
    return False


def _parsed(line: str, file: Path | str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # numbers too long, brackets too deep
        raise SourceError(
            f"'{file}', row {number} is not JSON ({error}). Expected one object a line."
        ) from error


def _rows(file: Path, kind: str, encoding_errors: str) -> Iterator[Any]:
    """The lines or records of a file, with `SourceError` for whatever goes wrong."""
    try:
        if kind == "parquet":
            yield from _parquet_rows(file)
            return
        # "-sig" leaves out the byte order mark that some editors put first.
        with _open_text(file, "utf-8-sig", encoding_errors) as lines:
            yield from json.load(lines) if kind == "json" else lines
    except UnicodeDecodeError as error:
        line, column = _first_undecodable(file)
        raise SourceError(
            f"'{file}', line {line}: byte {column} is not valid UTF-8 ({error.reason}). "
            "Convert the file to UTF-8, or set encoding_errors to 'replace' on the reader."
        ) from error
    except Exception as error:  # whatever a parser or decompressor raises
        raise SourceError(f"'{file}' could not be read as {kind}: {error}") from error


def _parquet_rows(file: Path) -> Iterable[dict[str, Any]]:
    import datasets

    return datasets.load_dataset(
        "parquet",
        data_files=[glob.escape(str(file))],
        split="train",
        streaming=True,
        batch_size=_RECORDS_AT_ONCE,
    )


def _open_text(file: Path, encoding: str, errors: str) -> TextIO:
    # Not by `datasets`: its streams forget encoding and errors where a file is compressed.
    import fsspec
    from fsspec.utils import infer_compression

    return fsspec.filesystem("file").open(
        str(file),
        "rt",
        encoding=encoding,
        errors=errors,
        compression=infer_compression(_NAMES.get(file, str(file))),
    )


def _first_undecodable(file: Path) -> tuple[int, int]:
    """Line and byte (both from 1) of the first byte sequence that is not UTF-8."""
    # Bytes that are not UTF-8 become lone surrogates.
    with _open_text(file, "utf-8", "surrogateescape") as lines:
        for number, line in enumerate(lines, start=1):
            for column, character in enumerate(line):
                if "\udc80" <= character <= "\udcff":
                    return number, len(line[:column].encode("utf-8")) + 1
    raise AssertionError(f"{file} decodes as UTF-8")


def normalize_whitespace(text: str) -> str:
    """`text` with every run of white space as one blank, none at the ends (case is kept)."""
    return " ".join(text.split())
