"""Rows of fields between commas or tabs, from lines, by Python's `csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from declutr.corpus.text_files import SourceError

_LONGEST_FIELD = 2**31 - 1  # a book may be one; csv itself stops at 131,072 characters


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
