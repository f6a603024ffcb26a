"""Rows of fields between commas or tabs, from lines, by Python's `csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from declutr.text_files import SourceError

_LONGEST_FIELD = 2**31 - 1  # a book may be one; csv itself stops at 131,072 characters


def delimited_rows(
    lines: Iterable[str], delimiter: str, file: Path | str
) -> Iterator[tuple[int, list[str]]]:
    """The fields of each row, and the number of the line where it ends, from 1; no blank lines.

    A field in quotes may hold delimiters, line ends and, doubled, quotes.

    # Parameters

    lines : with their ends.
    delimiter : `","` or a tab.
    file : for messages.

    # Raises

    `SourceError` : quotes that do not fit together. Between tabs also a field in quotes that holds
        both a tab and a line end: those are rows that begin and end with a quote of their own.
    """
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_FIELD))
    kind = "TSV" if delimiter == "\t" else "CSV"
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if delimiter == "\t" and any("\t" in field and "\n" in field for field in fields):
                raise csv.Error("a quote that opens a field is closed in another row")
            if fields:
                yield reader.line_num, fields
    except csv.Error as error:
        what = str(error)
        if what.startswith("new-line character"):  # its advice does not fit
            what = "a carriage return in a field without quotes"
        between = "tabs" if delimiter == "\t" else "commas"
        raise SourceError(
            f"'{file}', line {reader.line_num} is not {kind} ({what}). Expected fields between "
            f'{between}, in quotes ("") where they hold {between}, quotes or line ends. Where '
            "quotes stand alone, JSON lines can hold them."
        ) from error
