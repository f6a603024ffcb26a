"""Records of files: objects of JSON and parquet, and fields between commas or tabs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from declutr.corpus.text_files import (
    SourceError,
    file_format,
    is_compressed,
    open_bytes,
    open_text,
    telling_what_fails,
)

_ROWS_AT_ONCE = 1024  # of a parquet file, whatever the size of its row groups
_BUFFER = 1 << 20  # bytes of a column of it
_LONGEST_FIELD = 2**31 - 1  # a book may be one; csv itself stops at 131,072 characters


def record_format(file: Path, encoding_errors: str = "strict") -> str:
    """The format of a file as `file_format` has it, but of `.json` told from what is in it.

    `"json"` is an array, which begins with a bracket; otherwise it holds an object a line,
    `"lines"`.

    # Raises

    `SourceError` : a `.json` file that cannot be read.
    """
    kind = file_format(file)
    if kind != "json":
        return kind
    with telling_what_fails(file, "text"), open_text(file, encoding_errors) as lines:
        for line in lines:
            if line.strip():
                return "json" if line.lstrip().startswith("[") else "lines"
    return "lines"


def read_records(
    file: Path, kind: str, encoding_errors: str = "strict", key: str | None = None
) -> Iterator[Any]:
    """The records of a file, in order; of `"lines"` the lines as they are, for `parsed`.

    Everything but a JSON array is streamed.

    # Parameters

    kind : from `record_format`: `"lines"`, `"json"` or `"parquet"`.
    encoding_errors : `"strict"` or `"replace"`, for JSON that is not UTF-8.
    key : all that is wanted of a record, for formats that can leave out what is not. Without it
        in a file, all of a record comes.

    # Raises

    `SourceError` : the file cannot be read.
    """
    with telling_what_fails(file, kind):
        if kind == "parquet":
            yield from _parquet_rows(file, key)
            return
        with open_text(file, encoding_errors) as lines:
            yield from json.load(lines) if kind == "json" else lines


def parsed(line: str, file: Path | str, number: int) -> Any:
    """What a line of JSON holds; `file` and `number` are for the error.

    # Raises

    `SourceError` : it is not JSON.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # numbers too long, brackets too deep
        raise SourceError(
            f"'{file}', row {number} is not JSON ({error}). Expected one object a line."
        ) from error


def _parquet_rows(file: Path, key: str | None) -> Iterator[dict[str, Any]]:
    from pyarrow.parquet import ParquetFile

    # Parquet is read from its end, which a decompressed stream does not have yet.
    source = io.BytesIO(open_bytes(file).read()) if is_compressed(file) else str(file)
    with ParquetFile(source, buffer_size=_BUFFER) as table:
        columns = [key] if key in table.schema_arrow.names else None
        for batch in table.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            yield from batch.to_pylist()


def delimited_rows(
    lines: Iterable[str], delimiter: str, file: Path | str
) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row, and the number of the line where it ends, from 1; no blank lines.

    A field in quotes may hold delimiters, doubled quotes and, between commas, line ends. Between
    tabs most texts are written without quoting, where a quotation may begin in one row and end in
    another: rows are never joined there.

    # Parameters

    lines : with their ends.
    delimiter : `","` or a tab.
    file : for messages.

    # Raises

    `SourceError` : quotes that do not fit together; between tabs also a field with a line end.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    kind = "TSV" if delimiter == "\t" else "CSV"
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if delimiter == "\t" and any("\n" in field for field in fields):
                raise csv.Error("a quote that opens a field is closed in another line")
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        what = str(error)
        if what.startswith("new-line character"):  # its advice does not fit
            what = "a carriage return in a field without quotes"
        between = "tabs" if delimiter == "\t" else "commas"
        raise SourceError(
            f"'{file}', line {reader.line_num} is not {kind} ({what}). Expected fields between "
            f'{between}, in quotes ("") where they hold {between} or quotes. JSON lines can hold '
            "quotes that stand alone, and line ends."
        ) from error
