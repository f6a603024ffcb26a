"""Rows of tables from files: TSV, CSV, JSON lines, JSON arrays and parquet, plain or compressed.

Each row knows its place, so that whatever is wrong with it can be told with file and line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from declutr.corpus import normalize_whitespace
from declutr.corpus.records import delimited_rows, parsed, read_records, record_format
from declutr.corpus.text_files import TABLES, SourceError, file_format, read_lines

Column = str | int


@dataclass(frozen=True)
class Row:
    """One row of a table.

    # Parameters

    place : of the row, for messages: the file and the line.
    values : by the name of the column and, of TSV and CSV, by its number, from 0.
    """

    place: str
    values: Mapping[Column, Any]

    @classmethod
    def of_fields(
        cls, place: str, fields: Sequence[str], names: Sequence[str] = (), numbered: bool = True
    ) -> Row:
        """The row of fields under these names and, unless told otherwise, their numbers."""
        values: dict[Column, Any] = dict(enumerate(fields)) if numbered else {}
        return cls(place, values | dict(zip(names, fields, strict=False)))

    def value(self, column: Column) -> Any:
        """# Raises

        `SourceError` : there is no such column.
        """
        if column not in self.values:
            raise SourceError(
                f"{self.place}: no column {column!r}, found {self._columns()}. Set the columns of "
                "the dataset reader to those that are there."
            )
        return self.values[column]

    def text(self, column: Column) -> str:
        """The text under a column, with single blanks; `""` for none.

        # Raises

        `SourceError` : there is no such column, or something else than text in it.
        """
        return _single_spaced(self.value(column), column, self.place)

    def texts(self, column: Column) -> list[str]:
        """The same of a column that holds a text or a list of texts."""
        value = self.value(column)
        values = value if isinstance(value, list) else [value]
        return [_single_spaced(one, column, self.place) for one in values]

    def _columns(self) -> str:
        names = [name for name in self.values if isinstance(name, str)]
        return repr(names) if names else f"{len(self.values)} column(s), counted from 0"


def read_rows(
    files: Sequence[Path], header: bool = True, encoding_errors: str = "strict"
) -> Iterator[Row]:
    """Every row of every file, in order; blank lines are passed over.

    The name of a file tells its format: JSON lines, JSON arrays and parquet hold objects; `.csv`
    has fields between commas, in quotes where they need them; anything else has them between tabs,
    and quotes are characters like others.

    # Parameters

    files : from `declutr.corpus.documents.source_files`.
    header : the first line of TSV and CSV files names the columns.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.

    # Raises

    `SourceError` : a file that cannot be read, a row that is no object, or one that has more or
        fewer fields than its header.
    """
    for file in files:
        if is_delimited(file):
            yield from _fields(file, header, encoding_errors)
        else:
            yield from _records(file, encoding_errors)


def is_delimited(file: Path) -> bool:
    """Whether a file has fields between tabs or commas, told from its name."""
    return file_format(file) in ("text", *TABLES)


def read_fields(file: Path, encoding_errors: str = "strict") -> Iterator[tuple[str, list[str]]]:
    """The fields of each row of such a file that is not blank, with its place; headers, too.

    # Raises

    `SourceError` : a file that cannot be read.
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


def unique_names(fields: list[str], place: str) -> list[str]:
    """The names of columns that a header has.

    # Raises

    `SourceError` : two columns have the same.
    """
    if len(set(fields)) < len(fields):
        raise SourceError(f"{place}: two columns have the same name, got {fields}.")
    return fields


def _fields(file: Path, header: bool, encoding_errors: str) -> Iterator[Row]:
    names: list[str] = []
    for place, fields in read_fields(file, encoding_errors):
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
    return normalize_whitespace(value or "")
