"""Rows of tables from files: TSV, CSV, JSON lines, JSON arrays and parquet, plain or compressed.

Each row knows its place, so that whatever is wrong with it can be told with file and line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from declutr.corpus.delimited_rows import delimited_rows
from declutr.corpus.documents import SourceError, _is_array, _parsed, _rows, file_format, read_lines
from declutr.corpus.text_files import TABLES

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
        kind = file_format(file)
        if kind == "text" or kind in TABLES:
            yield from _fields(file, header, encoding_errors)
        else:
            yield from _records(file, kind, encoding_errors)


def _fields(file: Path, header: bool, encoding_errors: str) -> Iterator[Row]:
    names: list[str] = []
    for number, fields in _split(file, encoding_errors):
        place = f"'{file}', line {number}"
        if header and not names:
            names = fields
            if len(set(names)) < len(names):
                raise SourceError(f"{place}: two columns have the same name, got {names}.")
            continue
        if header and len(fields) != len(names):
            raise SourceError(
                f"{place} has {len(fields)} field(s), expected {len(names)} as in the header "
                f"({', '.join(names)}). A tab inside a text? JSON lines can hold it."
            )
        yield Row(place, dict(enumerate(fields)) | dict(zip(names, fields, strict=False)))


def _split(file: Path, encoding_errors: str) -> Iterator[tuple[int, list[str]]]:
    """The fields of each line that is not blank, with its number."""
    if file_format(file) != "csv":
        for number, line in enumerate(read_lines(file, encoding_errors), start=1):
            if line.strip():
                yield number, line.split("\t")
        return
    for number, fields in delimited_rows(read_lines(file, encoding_errors, ends=True), ",", file):
        if any(field.strip() for field in fields):
            yield number, fields


def _records(file: Path, kind: str, encoding_errors: str) -> Iterator[Row]:
    lines = kind == "lines" or (kind == "json" and not _is_array(file, encoding_errors))
    rows = _rows(file, "lines" if lines else kind, encoding_errors)
    for number, row in enumerate(rows, start=1):
        if lines:
            if not row.strip():
                continue
            row = _parsed(row, file, number)
        place = f"'{file}', {'line' if lines else 'row'} {number}"
        if not isinstance(row, dict):
            raise SourceError(f"{place} is {type(row).__name__}, expected an object of columns.")
        yield Row(place, row)


def _single_spaced(value: Any, column: Column, place: str) -> str:
    if value is not None and not isinstance(value, str):
        raise SourceError(
            f"{place}: column {column!r} holds {type(value).__name__}, expected a string."
        )
    return " ".join((value or "").split())
