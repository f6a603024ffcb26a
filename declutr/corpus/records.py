"""Records of files: objects of JSON and parquet, and delimited fields."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from declutr.corpus.compressed_files import is_compressed, open_bytes
from declutr.corpus.text_files import SourceError, file_format, open_text, telling_what_fails

_ROWS_AT_ONCE = 1024  # Rows of a parquet file in one batch, whatever the size of its row groups.
_BUFFER = 1 << 20  # Bytes that are read at once from a column of a parquet file.
_LONGEST_FIELD = 2**31 - 1  # A field may be a book; by default, csv stops at 131,072 characters.


def record_format(file: Path, encoding_errors: str = "strict") -> str:
    """Return the format of a file, reading the beginning of a `.json` file to tell it.

    The formats are those of `file_format`, where `"json"` is a JSON array, which begins with a
    bracket. A `.json` file without one holds an object per line, `"lines"`.

    # Raises

    `SourceError` : if a `.json` file cannot be read.
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
    """Yield the records of a file, in order; for `"lines"`, the lines as they are, for `parsed`.

    Everything but a JSON array is streamed.

    # Parameters

    file : the file, plain or compressed.
    kind : from `record_format`: `"lines"`, `"json"` or `"parquet"`.
    encoding_errors : `"strict"` or `"replace"`, for JSON that is not UTF-8.
    key : the only key that is needed, so that a parquet file need not be read whole. If a file does
        not have it, whole records are yielded.

    # Raises

    `SourceError` : if the file cannot be read.
    """
    with telling_what_fails(file, kind):
        if kind == "parquet":
            yield from _parquet_rows(file, key)
            return
        with open_text(file, encoding_errors) as lines:
            yield from json.load(lines) if kind == "json" else lines


def parsed(line: str, file: Path | str, number: int) -> Any:
    """Return the value of a line of JSON.

    # Raises

    `SourceError` : if the line is not JSON.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:  # RecursionError: brackets nested too deeply.
        raise SourceError(
            f"'{file}', row {number} is not JSON ({error}). Expected one object a line."
        ) from error


def _parquet_rows(file: Path, key: str | None) -> Iterator[dict[str, Any]]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise SourceError(
            f"'{file}' is parquet, which needs the package pyarrow, which is not installed: pip "
            "install 'declutr[parquet]'."
        ) from error
    # Parquet is read from its end, which a decompressed stream does not have yet.
    source = io.BytesIO(open_bytes(file).read()) if is_compressed(file) else str(file)
    with ParquetFile(source, buffer_size=_BUFFER) as table:
        names = table.schema_arrow.names
        columns = [key] if key in names else None
        if any(names.count(name) > 1 for name in columns or names):  # pyarrow keeps the last one
            raise SourceError(f"'{file}': two columns have the same name, got {names}.")
        for batch in table.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False):
            yield from batch.to_pylist()


def delimited_rows(
    lines: Iterable[str], delimiter: str, file: Path | str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each row that is not blank, with the number of the line where it ends.

    Lines are numbered from 1. A quoted field may hold delimiters, doubled quotes and, between
    commas, line ends. Most tab-separated texts are written without quoting, so that a quotation may
    begin in one row and end in another: such rows are never joined.

    # Parameters

    lines : the lines with their ends.
    delimiter : `","` or a tab.
    file : the name of the file in messages.

    # Raises

    `SourceError` : if quotes do not match, or a tab-separated field holds a line end.
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
        if what.startswith("new-line character"):  # The advice in csv's message does not apply.
            what = "a carriage return in a field without quotes"
        between = "tabs" if delimiter == "\t" else "commas"
        raise SourceError(
            f"'{file}', line {reader.line_num} is not {kind} ({what}). Expected fields between "
            f'{between}, in quotes ("") where they hold {between} or quotes. JSON lines can hold '
            "quotes that stand alone, and line ends."
        ) from error


def column_names(names: Iterable[str]) -> list[str]:
    """Return the names of columns for a message; a line of text without a header may be long."""
    return [name if len(name) <= 40 else f"{name[:39]}…" for name in names]
