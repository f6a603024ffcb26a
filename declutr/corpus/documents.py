"""Documents from files of any format, one per row, in the order of the files.

Text files hold one document per line; JSON lines, JSON arrays and parquet hold it under a key, CSV
and TSV in a column that their header names. Everything but a JSON array is streamed, so that memory
does not grow with the corpus and no second copy of it is written.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from declutr.corpus import (
    PathLike,  # noqa: F401 - re-exported
    normalize_whitespace,  # noqa: F401 - re-exported
    require_encoding_errors,
    without_surrogates,
)
from declutr.corpus.records import column_names, delimited_rows, parsed, read_records, record_format
from declutr.corpus.source_files import source_files  # noqa: F401 - re-exported
from declutr.corpus.text_files import (
    TABLES,
    SourceError,
    decoded,
    file_format,  # noqa: F401 - re-exported
    noted_lines,
    read_lines,
    telling_of_changes,
)

logger = logging.getLogger(__name__)

_SET_KEY = (
    "set text_key to the one that holds the document (--text-key of a command, of a recipe "
    """-o '{"dataset_reader.text_key": "..."}')."""
)

OnBadRow = Callable[[SourceError], None]


def read_documents(
    files: Sequence[Path],
    text_key: str = "text",
    encoding_errors: str = "strict",
    on_bad_row: OnBadRow | None = None,
) -> Iterator[str]:
    """Yield every row of every file, in order; blank rows are kept, as `""`.

    A blank line of a JSON-lines file, and a null document, is a blank row. Only a line feed ends a
    line (`declutr.corpus.text_files`). Files with a byte order mark of UTF-16 or UTF-32 are read in
    that encoding. A lone surrogate, as JSON holds for half of an emoji, is read as U+FFFD.

    CSV and TSV files are read as Python's `csv` and other tools read them: the first row names the
    columns, a quoted text may hold line ends, and blank lines are not rows. To have the lines of
    such a file as they are, name it `.txt`.

    A warning tells of a file that changes while it is read.

    # Parameters

    files : from `source_files`.
    text_key : the key (or column) that holds the document in JSON lines, CSV, TSV and parquet.
    encoding_errors : what to do with bytes that are not UTF-8 in text, tables and JSON lines.
        `"strict"` raises `SourceError` with the line number; `"replace"` replaces them by U+FFFD
        and logs the number of such rows of a text file.
    on_bad_row : called with the error of a record that has no document: it is not JSON, not an
        object, has no such key or no string there, or its fields differ from the header. The row is
        then blank. By default, the error is raised.

    # Raises

    `SourceError` : if a file or row cannot be read, or a table has no column `text_key`.
    """
    require_encoding_errors(encoding_errors)
    for file in files:
        rows = _of_file(file, text_key, encoding_errors, on_bad_row)
        yield from telling_of_changes(file, rows)


def _of_file(
    file: Path, text_key: str, encoding_errors: str, on_bad_row: OnBadRow | None
) -> Iterator[str]:
    kind = record_format(file, encoding_errors)
    if kind in TABLES:
        lines = read_lines(file, encoding_errors, ends=True)
        yield from _column(lines, TABLES[kind], file, text_key, on_bad_row)
    elif kind == "text":
        yield from read_lines(file, encoding_errors)
    else:
        rows = read_records(file, kind, encoding_errors, text_key)
        yield from _documents(rows, kind, file, text_key, on_bad_row)


def read_stream(
    stream: BinaryIO,
    name: str,
    kind: str = "text",
    text_key: str = "text",
    on_bad_row: OnBadRow | None = None,
) -> Iterator[str]:
    """Yield every row of a stream that can be read only once, such as standard input.

    The rows are those of `read_documents`. Bytes that are not UTF-8 become U+FFFD. The stream is
    not closed.

    # Parameters

    stream : bytes, not compressed.
    name : the name of the stream in messages.
    kind : `"text"`, or `"lines"` for JSON lines.
    text_key, on_bad_row : as in `read_documents`.

    # Raises

    `SourceError` : if `kind` is unknown, or a row cannot be read.
    """
    if kind not in ("text", "lines"):
        raise SourceError(f"A stream holds 'text' or 'lines' (of JSON), got '{kind}'.")
    lines = decoded(stream, "replace", name)
    try:
        if kind == "text":
            yield from noted_lines(lines, name, "replace")
        else:
            yield from _documents(lines, kind, name, text_key, on_bad_row)
    finally:
        below: Any = lines.detach()  # Only the caller closes the stream.
        if below is not stream:
            below.detach()


def _column(
    lines: Iterable[str], delimiter: str, file: Path, text_key: str, on_bad_row: OnBadRow | None
) -> Iterator[str]:
    """Yield the field of each row of a table that is in the column `text_key`."""
    rows = delimited_rows(lines, delimiter, file)
    _, names = next(rows, (0, []))
    if names and names.count(text_key) != 1:
        found = "no column" if text_key not in names else "more than one column"
        raise SourceError(
            f"'{file}' has {found} '{text_key}'. Found {column_names(names)}; {_SET_KEY} "
            "To have its lines as they are, give the file a name that ends in .txt."
        )
    column = names.index(text_key) if names else 0
    for number, fields in rows:
        if len(fields) == len(names):
            yield fields[column]
            continue
        error = SourceError(
            f"'{file}', line {number} has {len(fields)} field(s), expected {len(names)} as in the "
            f"header {names}. Put texts that hold {delimiter!r} in quotes, or write JSON lines."
        )
        if on_bad_row is None:
            raise error
        on_bad_row(error)
        yield ""


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
        row = parsed(row, file, number)
    if not isinstance(row, dict):
        raise SourceError(
            f"'{file}', row {number} is {type(row).__name__}, expected an object with the key "
            f"'{text_key}'."
        )
    if text_key not in row:
        raise SourceError(
            f"'{file}', row {number}: no key '{text_key}'. Found {sorted(row)}; {_SET_KEY}"
        )
    text = row[text_key]
    if text is not None and not isinstance(text, str):
        raise SourceError(
            f"'{file}', row {number}: '{text_key}' is {type(text).__name__}, expected a string."
        )
    return without_surrogates(text or "")
