"""Rows of tables from TSV, CSV, JSON lines, JSON arrays and parquet, plain or compressed.

Each row knows its place, so that error messages can name the file and the line.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from declutr.corpus import (
    normalize_whitespace,
    require_encoding_errors,
    without_surrogates,
)
from declutr.corpus.records import column_names, delimited_rows, parsed, read_records, record_format
from declutr.corpus.text_files import (
    TABLES,
    SourceError,
    file_format,
    read_lines,
    telling_of_changes,
)

logger = logging.getLogger("declutr.corpus.documents")  # All messages on a corpus have one name.

Column = str | int

FieldRows = Iterator[tuple[str, list[str]]]
"""The place and the fields of each row of a delimited file."""


@dataclass(frozen=True)
class Row:
    """One row of a table.

    # Parameters

    place : the file and the line of the row, for messages.
    values : the values by the name of their column and, for TSV and CSV, by its number from 0.
    """

    place: str
    values: Mapping[Column, Any]

    @classmethod
    def of_fields(
        cls, place: str, fields: Sequence[str], names: Sequence[str] = (), numbered: bool = True
    ) -> Row:
        """Make a row of fields.

        # Parameters

        place : the file and the line of the row, for messages.
        fields : the values, in the order of the columns.
        names : the names of the columns.
        numbered : whether the values are also found by the number of their column.
        """
        values: dict[Column, Any] = dict(enumerate(fields)) if numbered else {}
        return cls(place, values | dict(zip(names, fields, strict=False)))

    def value(self, column: Column) -> Any:
        """Return the value in a column.

        # Raises

        `SourceError` : if there is no such column.
        """
        if column not in self.values:
            raise SourceError(
                f"{self.place}: no column {column!r}, found {self._columns()}. Set the columns "
                "(keys of the dataset reader, options of the command) to those that are there."
            )
        return self.values[column]

    def text(self, column: Column) -> str:
        """Return the text in a column, with single spaces; `""` if the value is missing.

        # Raises

        `SourceError` : if there is no such column, or its value is not a string.
        """
        return _single_spaced(self.value(column), column, self.place)

    def texts(self, column: Column) -> list[str]:
        """Return the texts in a column that holds a text or a list of texts, with single spaces.

        # Raises

        `SourceError` : if there is no such column, or a value is not a string.
        """
        value = self.value(column)
        values = value if isinstance(value, list) else [value]
        return [_single_spaced(one, column, self.place) for one in values]

    def _columns(self) -> str:
        names = column_names(name for name in self.values if isinstance(name, str))
        return repr(names) if names else f"{len(self.values)} column(s), counted from 0"


def read_rows(
    files: Sequence[Path], header: bool = True, encoding_errors: str = "strict"
) -> Iterator[Row]:
    """Yield every row of every file, in order; blank lines are skipped.

    The name of a file tells its format. JSON lines, JSON arrays and parquet hold objects; `.csv`
    has fields between commas, quoted where necessary; all other files have fields between tabs, and
    quotes have no special meaning there.

    # Parameters

    files : from `declutr.corpus.source_files.source_files`.
    header : whether the first line of TSV and CSV files names the columns.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.

    # Raises

    `SourceError` : if a file cannot be read, a row is not an object, or a row has more or fewer
        fields than the header.
    """
    require_encoding_errors(encoding_errors)
    for file in files:
        if is_delimited(file):
            rows = _fields(file, header, encoding_errors)
        else:
            rows = _records(file, encoding_errors)
        yield from telling_of_changes(file, rows)


def is_delimited(file: Path) -> bool:
    """Return whether the name of a file means fields between tabs or commas."""
    return file_format(file) in ("text", *TABLES)


def read_fields(file: Path, encoding_errors: str = "strict") -> FieldRows:
    """Yield the place and the fields of each row of a delimited file, headers included.

    Blank rows are skipped.

    # Parameters

    file : a file for which `is_delimited` is true.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.

    # Raises

    `SourceError` : if the file cannot be read.
    """
    rows: Iterable[tuple[int, list[str]]]
    if file_format(file) == "csv":
        rows = delimited_rows(read_lines(file, encoding_errors, ends=True), ",", file)
    else:
        lines = enumerate(read_lines(file, encoding_errors), start=1)
        rows = ((number, line.split("\t")) for number, line in lines)
    for number, fields in rows:
        if any(field.strip() for field in fields):
            yield f"'{file}', line {number}", fields


def is_quoted(field: str) -> bool:
    """Return whether a field is quoted as in CSV, with quotes in it, which are doubled."""
    inner = field[1:-1]
    ends = field[:1] == field[-1:] == '"'
    return ends and '""' in inner and '"' not in inner.replace('""', "")


def telling_of_quotes(rows: FieldRows, file: Path) -> FieldRows:
    """Yield the rows of a file, and warn once of a field between tabs that is quoted as in CSV."""
    told = file_format(file) == "csv"
    for place, fields in rows:
        if not told and any(map(is_quoted, fields)):
            told = True
            logger.warning(
                "%s: a field is in quotes and has doubled quotes in it, as pandas and spreadsheets "
                "write them. Between tabs, quotes have no special meaning here, and stay in the "
                "text. Write CSV or JSON lines, or without quoting (quoting=csv.QUOTE_NONE).",
                place,
            )
        yield place, fields


def unique_names(fields: list[str], place: str) -> list[str]:
    """Return the fields of a header at a place, which name the columns.

    # Raises

    `SourceError` : if two columns have the same name.
    """
    if len(set(fields)) < len(fields):
        raise SourceError(f"{place}: two columns have the same name, got {fields}.")
    return fields


def _fields(file: Path, header: bool, encoding_errors: str) -> Iterator[Row]:
    names: list[str] = []
    for place, fields in telling_of_quotes(read_fields(file, encoding_errors), file):
        if header and not names:
            names = unique_names(fields, place)
        elif not header or len(fields) == len(names):
            yield Row.of_fields(place, fields, names)
        else:
            raise SourceError(
                f"{place} has {len(fields)} field(s), expected {len(names)} as in the header "
                f"({', '.join(names)}). A tab inside a text? JSON lines can hold it."
            )


def _records(file: Path, encoding_errors: str) -> Iterator[Row]:
    kind = record_format(file, encoding_errors)
    for number, row in enumerate(read_records(file, kind, encoding_errors), start=1):
        if kind == "lines":
            if not row.strip():
                continue
            row = parsed(row, file, number)
        place = f"'{file}', {'line' if kind == 'lines' else 'row'} {number}"
        if not isinstance(row, dict):
            raise SourceError(f"{place} is {type(row).__name__}, expected an object of columns.")
        yield Row(place, row)


def _single_spaced(value: Any, column: Column, place: str) -> str:
    if value is not None and not isinstance(value, str):
        raise SourceError(
            f"{place}: column {column!r} holds {type(value).__name__}, expected a string."
        )
    return without_surrogates(normalize_whitespace(value or ""))
