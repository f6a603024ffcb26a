"""Rows of one's own data files: CSV, TSV and JSON, with the place of each row for errors."""

import csv
import io
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from declutr.corpus import SourceError
from declutr.corpus.tables import is_quoted, unique_names
from declutr.corpus.text_files import file_format
from declutr.evaluation.task import BrokenData, require_file
from declutr.evaluation.text_files import read_text
from declutr.system import raised_as

logger = logging.getLogger(__name__)

DELIMITERS = {"comma": ",", "tab": "\t", "semicolon": ";", "pipe": "|"}
"""The delimiters that are tried, and their names in a description."""
ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json")
"""The endings of the names of files that can be read."""
_LONGEST_FIELD = 2**31 - 1  # csv stops at 131,072 characters otherwise

Column = str | int
"""The name of a column, or its number, from 0, in a file without a header."""


@dataclass(frozen=True)
class Layout:
    """How the delimited files of a task are written; JSON needs only the encoding.

    # Parameters

    delimiter : the character between fields; None for the one under which the header has the
        columns that are needed, or else that of the ending of the file.
    header : whether the first row names the columns.
    quoted : whether quotes may enclose a field; None for all files but those with tabs.
    encoding : the name of a codec; None for UTF-8, or what a byte order mark says.
    """

    delimiter: str | None = None
    header: bool = True
    quoted: bool | None = None
    encoding: str | None = None


@dataclass(frozen=True)
class TableRow:
    """A row of a file, whose values raise `BrokenData` if they are not what is expected."""

    path: Path
    line: int
    """The number of the line where the row begins, or of the object in a JSON array, from 1."""
    values: Mapping[Column, Any]

    def text(self, column: Column) -> str:
        """Return a text that is not blank."""
        value = self.values[column]
        if not isinstance(value, str) or not value.strip():
            self.refuse(column, "a text")
        return value

    def label(self, column: Column) -> str:
        """Return a label, which may be a text, a whole number or true and false, as a text."""
        value = self.values[column]
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, (str, int)) or not str(value).strip():
            self.refuse(column, "a label (a text or a whole number)")
        return str(value).strip()

    def number(self, column: Column) -> float:
        """Return a finite number."""
        found = _as_number(self.values[column])
        if not math.isfinite(found):
            self.refuse(column, "a number, such as 3.5")
        return found

    def texts(self, column: Column, candidates: bool = False) -> list[str]:
        """Return a text, or those of a list, which are not blank.

        # Parameters

        column : the column.
        candidates : whether they are candidates of a query: a list of them may be empty, and have
            blank texts.
        """
        value = self.values[column]
        listed = isinstance(value, list)
        found = value if listed else [value]
        any_list = candidates and listed
        texts = [text for text in found if isinstance(text, str) and (any_list or text.strip())]
        if len(texts) < len(found) or not (texts or any_list):
            self.refuse(column, "a text or a list of texts")
        return texts

    def numbers(self, column: Column) -> list[float]:
        """Return the finite numbers of a list, at least one."""
        value = self.values[column]
        found = [_as_number(each) for each in value] if isinstance(value, list) else []
        if not found or not all(map(math.isfinite, found)):
            self.refuse(column, "a list of numbers")
        return found

    def refuse(self, column: Column, expected: str) -> None:
        """Raise `BrokenData` for the value in a column."""
        value = self.values[column]
        got = "nothing" if value is None or value == "" else repr(value)[:60]
        raise BrokenData(
            f"{self.path}, line {self.line}, column {column!r}: got {got}, expected {expected}."
        )


def _as_number(value: Any) -> float:
    """Return a value as a number; not a number if it is none."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def read_table(path: Path, columns: Sequence[Column], layout: Layout) -> list[TableRow]:
    """Return the rows of a file, all of which have the columns that are needed.

    Blank lines are skipped. The ending of the name tells the format.

    # Parameters

    path : the file: `.csv`, `.tsv` or `.txt` with fields, `.jsonl` with an object on each line, or
        `.json` with either that or an array of objects.
    columns : the columns that every row must have.
    layout : how delimited files are written.

    # Raises

    `MissingData` : there is no such file.
    `BrokenData` : the file has wrong content; the message names the line and what was expected.
    """
    if require_file(path).suffix.lower() not in ENDINGS:
        raise BrokenData(f"{path}: expected a file that ends with one of {', '.join(ENDINGS)}.")
    text = _decoded(path, layout.encoding)
    json_rows = file_format(path) in ("lines", "json")
    rows = list((_objects if json_rows else _delimited)(path, text, columns, layout))
    if not rows:
        raise BrokenData(f"{path} has no row, expected the columns {_names(columns)}.")
    return rows


def _decoded(path: Path, encoding: str | None) -> str:
    if encoding is None:
        return read_text(path, latin_1=False)
    raw = path.read_bytes()
    try:
        return raw.decode(encoding).removeprefix("\ufeff")
    except UnicodeError as error:
        start, why = getattr(error, "start", 0), getattr(error, "reason", error)
        line = raw[:start].count(b"\n") + 1
        raise BrokenData(
            f"{path}, line {line}: byte {start + 1} of the file is not {encoding}, the "
            f"encoding that the description names ({why})."
        ) from error


def _objects(
    path: Path, text: str, columns: Sequence[Column], layout: Layout
) -> Iterator[TableRow]:
    values: Iterator[tuple[int, Any]]
    if path.suffix.lower() == ".json" and text.lstrip().startswith("["):
        values = enumerate(_json(path, 1, text), 1)
    else:
        lines = enumerate(text.split("\n"), 1)
        values = ((number, _json(path, number, line)) for number, line in lines if line.strip())
    for number, value in values:
        if not isinstance(value, dict):
            raise BrokenData(
                f"{path}, line {number}: expected an object with {_names(columns)}, got "
                f"{type(value).__name__}."
            )
        yield _with_columns(TableRow(path, number, value), columns)


def _json(path: Path, number: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        at = getattr(error, "lineno", 1) + number - 1
        raise BrokenData(
            f"{path}, line {at}: expected one JSON object on each line, got {text[:60]!r} "
            f"({getattr(error, 'msg', error)}). The file may be truncated."
        ) from error


def _delimited(
    path: Path, text: str, columns: Sequence[Column], layout: Layout
) -> Iterator[TableRow]:
    delimiter = _delimiter(path, text, columns, layout)
    rows = _fields(path, text, delimiter, layout.quoted)
    names: list[str] = []
    if layout.header:
        line, found = next(rows, (1, []))
        with raised_as(BrokenData, SourceError):
            names = unique_names([name.strip() for name in found], f"{path}, line {line}")
        if found:
            _with_columns(
                TableRow(path, line, dict(enumerate(names)) | dict.fromkeys(names)), columns
            )
    width = len(names)
    for line, fields in rows:
        width = width or len(fields)
        if len(fields) != width:
            by = f"as in the header ({', '.join(names)})" if names else "as in the first row"
            raise BrokenData(
                f"{path}, line {line}: got {len(fields)} fields, expected {width} {by}. A text "
                f"that contains {delimiter!r} must stand in double quotes."
            )
        values: dict[Column, Any] = dict(enumerate(fields))
        row = TableRow(path, line, values | dict(zip(names, fields, strict=False)))
        yield row if names else _with_columns(row, columns)


def _delimiter(path: Path, text: str, columns: Sequence[Column], layout: Layout) -> str:
    """Return the delimiter that is given, or under which the header has the columns."""
    if layout.delimiter is not None:
        return layout.delimiter
    usual = "\t" if path.suffix.lower() in (".tsv", ".txt") else ","
    if layout.header:
        head = text.lstrip("\r\n").partition("\n")[0]
        for delimiter in (usual, *DELIMITERS.values()):
            names = {name.strip() for name in next(csv.reader([head], delimiter=delimiter), [])}
            if all(column in names for column in columns):
                return delimiter
    return usual


def _fields(
    path: Path, text: str, delimiter: str, quoted: bool | None
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line where each row begins, and the fields of the row."""
    csv.field_size_limit(_LONGEST_FIELD)
    told = quoted is not None
    quoted = delimiter != "\t" if quoted is None else quoted
    lines = io.StringIO(text, newline="")
    if quoted:
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
    else:
        reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    line = 1
    try:
        for fields in reader:
            if not (told or quoted) and any(map(is_quoted, fields)):
                told = True
                logger.warning(
                    "%s, line %d: a field is in quotes and has doubled quotes in it, as pandas and "
                    "spreadsheets write them. Between tabs, quotes stay in the text, unless the "
                    'description says "quoted": true ("quoted": false is without this warning).',
                    path,
                    line,
                )
            if any(field.strip() for field in fields):
                yield line, fields
            line = reader.line_num + 1
    except csv.Error as error:
        raise BrokenData(
            f"{path}, line {line}: {error}. Expected fields between {delimiter!r}; one that "
            'contains it, quotes or a line end stands in double quotes, with quotes doubled ("").'
        ) from error


def _with_columns(row: TableRow, columns: Sequence[Column]) -> TableRow:
    missing = [column for column in columns if column not in row.values]
    if missing:
        named = [name for name in row.values if isinstance(name, str)]
        found = _names(named) if named else f"{len(row.values)} columns without names, from 0"
        advice = "A task.json can say what they are called"
        if 0 in row.values:  # fields, not an object of JSON
            advice += '; for a file without a header, it has "header": false and numbers from 0'
        raise BrokenData(
            f"{row.path}, line {row.line}: expected the columns {_names(columns)}, found {found}. "
            f"{advice}."
        )
    return row


def _names(columns: Sequence[Column]) -> str:
    return ", ".join(map(repr, columns))
