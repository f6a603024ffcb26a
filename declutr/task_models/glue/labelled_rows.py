"""Rows of texts, with labels where there are any."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from declutr.corpus.documents import SourceError
from declutr.corpus.tables import Row, is_delimited, read_fields, read_rows, unique_names
from declutr.task_models.glue.layouts import Layout

logger = logging.getLogger(__name__)


class LabelledRow(NamedTuple):
    """One text or two, and what is known of them."""

    id: int
    """The number of the row in its file, from 0: headers do not count, unusable rows do. Further
    files go on where the one before ended."""
    texts: tuple[str, ...]
    label: str | float | None


def read_labelled_rows(
    files: Sequence[Path],
    layout: Layout,
    source: str,
    strict: bool = False,
    encoding_errors: str = "strict",
) -> list[LabelledRow]:
    """The rows of files of a task, in order.

    Rows with a wrong number of columns, which QQP has, are left out; so are rows without a label,
    unless none has one, as in test files. The log counts both.

    # Parameters

    source : names the data in messages.
    strict : a row with a wrong number of columns is an error.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.

    # Raises

    `SourceError` : a file that cannot be read, a column that is missing, a label that is no label
        of the task, or not one row.
    """
    rows: list[LabelledRow] = []
    faults: list[str] = []
    for file in files:
        for row, fault in _rows(file, layout, encoding_errors):
            number = len(rows) + len(faults)
            if not fault:
                rows.append(LabelledRow(number, layout.texts_of(row), layout.label_of(row)))
            elif strict:
                raise SourceError(f"{fault}. Mend the row, or set strict to false to leave it out.")
            else:
                faults.append(fault)
    if faults:
        logger.warning(
            "%s: %d row(s) with a wrong number of columns are left out; the first: %s.",
            source,
            len(faults),
            faults[0],
        )
    if not rows:
        raise SourceError(
            f"{source}: no row could be read ({len(faults)} have a wrong number of columns). "
            "Expected a line for each text or pair of texts."
        )
    return _labelled_if_any(rows, source)


def _labelled_if_any(rows: list[LabelledRow], source: str) -> list[LabelledRow]:
    labelled = [row for row in rows if row.label is not None]
    if labelled and len(labelled) < len(rows):
        logger.warning(
            "%s: %d row(s) without a label are left out.", source, len(rows) - len(labelled)
        )
    logger.info("%s: %d rows, %d of them with a label.", source, len(rows), len(labelled))
    return labelled or rows


def _rows(file: Path, layout: Layout, encoding_errors: str) -> Iterator[tuple[Row, str]]:
    """Each row of a file, and what is wrong with its number of columns, `""` if nothing."""
    if not is_delimited(file):
        yield from ((row, "") for row in read_rows([file], encoding_errors=encoding_errors))
        return
    # A header that is not there in every file of a task, and rows that do not fit it, are seen to
    # here. Numbers count beside names only where a header is asked for: in others they move.
    names: list[str] = []
    width = 0
    for place, fields in read_fields(file, encoding_errors):
        if not width:
            width = len(fields)
            if layout.names_columns(fields):
                names = unique_names(fields, place)
                continue
        fault = ""
        if len(fields) != width:
            fault = f"{place} has {len(fields)} column(s), expected {width} as in line 1"
        yield Row.of_fields(place, fields, names, numbered=not names or bool(layout.header)), fault
