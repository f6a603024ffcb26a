"""Rows of labelled texts, read from files with columns and from SentEval's files."""

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from declutr.corpus.documents import PathLike, SourceError
from declutr.corpus.source_files import source_files
from declutr.corpus.tables import (
    Row,
    is_delimited,
    read_fields,
    read_rows,
    telling_of_quotes,
    unique_names,
)
from declutr.sampling.document_selection import all_rows, shuffled
from declutr.system import raised_as
from declutr.task_models.glue.layouts import Layout

logger = logging.getLogger(__name__)

TREC = "trec"
OF_CLASSES = ("mr", "cr", "subj", "mpqa")
SENTEVAL_TASKS = (TREC, *OF_CLASSES)
"""The tasks of SentEval whose files have no columns: TREC, and those with one file per class."""

_PART = re.compile("(mis)?matched")
_INDICES = ("index", "id", "idx")  # columns of test files; QQP's is "id"
_BINS = 10  # parts into which scores are divided for stratified sampling


class LabelledRow(NamedTuple):
    """One text or a pair of texts, with its row number and label."""

    id: int
    """The number of the row in its file, from 0, counting unusable rows but not headers.

    If there are several files, the numbers continue from one to the next.
    """
    texts: tuple[str, ...]
    label: str | float | None
    number: int | None = None
    """What the column `index` or `id` says, or else the number of the row in this file alone.

    `None` if it is `id`, as in the first file.
    """
    part: str = ""
    """`"matched"` or `"mismatched"`, if the name of the file says so, as MNLI's do."""


def read_labelled_rows(
    files: Sequence[Path],
    layout: Layout,
    source: str,
    strict: bool = False,
    encoding_errors: str = "strict",
    with_unlabelled: bool = False,
) -> list[LabelledRow]:
    """Read the rows of the files of a task, in order.

    Rows with a wrong number of columns, which QQP has, are left out. Rows without a label are left
    out too, unless no row has one, as in test files. The numbers of both are logged.

    # Parameters

    files : the files to read.
    layout : the columns of the files.
    source : the name of the data in messages.
    strict : whether a row with a wrong number of columns is an error.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    with_unlabelled : whether to keep rows without a label among others that have one.

    # Raises

    `SourceError` : a file cannot be read, a column is missing, a label is not one of the task, or
        there are no rows.
    """
    rows: list[LabelledRow] = []
    faults: list[str] = []
    for file in files:
        part = _PART.search(file.name.lower())
        for place, (row, fault) in enumerate(_rows(file, layout, encoding_errors)):
            number = len(rows) + len(faults)
            if not fault:
                own = number, layout.texts_of(row), layout.label_of(row)
                there = _number(row, place)
                of_file = None if there == number else there, part.group() if part else ""
                rows.append(LabelledRow(*own, *of_file))
            elif strict:
                raise SourceError(f"{fault}. Mend the row, or set strict to false to leave it out.")
            else:
                faults.append(fault)
    if faults:
        logger.warning(
            f"{source}: {len(faults)} row(s) with a wrong number of columns are left out; the "
            f"first: {faults[0]}."
        )
    if not rows:
        raise SourceError(
            f"{source}: no row could be read ({len(faults)} have a wrong number of columns). "
            "Expected a line for each text or pair of texts."
        )
    return rows if with_unlabelled else _labelled_if_any(rows, source)


def _number(row: Row, place: int) -> int:
    values = (str(row.values.get(name)) for name in _INDICES)
    return next((int(value) for value in values if value.isdecimal()), place)


def _labelled_if_any(rows: list[LabelledRow], source: str) -> list[LabelledRow]:
    labelled = [row for row in rows if row.label is not None]
    if labelled and len(labelled) < len(rows):
        logger.warning(
            "%s: %d row(s) without a label are left out.", source, len(rows) - len(labelled)
        )
    logger.info("%s: %d rows, %d of them with a label.", source, len(rows), len(labelled))
    return labelled or rows


def _rows(file: Path, layout: Layout, encoding_errors: str) -> Iterator[tuple[Row, str]]:
    """Yield each row of a file with the error in its number of columns, or `""` if it is right."""
    if not is_delimited(file):
        yield from ((row, "") for row in read_rows([file], encoding_errors=encoding_errors))
        return
    # Not every file of a task has a header, and rows may not fit it, so the fields are read here
    # instead of by `read_rows`. Columns of a file with a header can also be given by number only if
    # the layout requires the header: in the files of tasks the numbers differ from file to file.
    names: list[str] = []
    width = 0
    rows = read_fields(file, encoding_errors)
    if layout.header is not None:  # a user's own file; GLUE's QQP has such quotes in public codes
        rows = telling_of_quotes(rows, file)
    for place, fields in rows:
        if not width:
            width = len(fields)
            if layout.names_columns(fields):
                names = unique_names(fields, place)
                continue
        fault = ""
        if len(fields) != width:
            fault = f"{place} has {len(fields)} column(s), expected {width} as in line 1"
        yield Row.of_fields(place, fields, names, numbered=not names or bool(layout.header)), fault


def read_senteval_rows(task: str, path: PathLike | Sequence[PathLike]) -> list[LabelledRow]:
    """Read the rows of a task of SentEval, in order; with one file per class, class 1 comes first.

    Text is UTF-8 or, in older files, Latin-1. A byte order mark at the beginning of a file
    determines its encoding.

    # Parameters

    task : one of `SENTEVAL_TASKS`.
    path : one or several files for TREC, and the folder with both files for the other tasks.

    # Raises

    `SourceError` : a file is missing, empty or in another encoding, or a line has no class.
    """
    # Imported here, because it imports scikit-learn, which takes time that this module should not.
    from declutr.evaluation.task import TaskError

    with raised_as(SourceError, TaskError):
        if task == TREC:
            return _questions(source_files(path))
        return _classes(task, path)


def _questions(files: Sequence[Path]) -> list[LabelledRow]:
    """Read lines of the form `COARSE:fine question`; the coarse class is the label."""
    from declutr.evaluation.tasks.classification import TREC_CLASSES
    from declutr.evaluation.text_files import fields_of, label_of, read_lines, words

    rows: list[LabelledRow] = []
    for file in files:
        for number, line in enumerate(read_lines(file), start=1):
            label, rest = fields_of(line.strip(), ":", 2, file, number)[0], line.partition(":")[2]
            label_of(label, TREC_CLASSES, file, number)
            rows.append(LabelledRow(len(rows), (words(rest.strip().partition(" ")[2]),), label))
    return rows


def _classes(task: str, path: PathLike | Sequence[PathLike]) -> list[LabelledRow]:
    """Read the two files of a task with one file per class and one sentence per line."""
    from declutr.evaluation.tasks.classification import BINARY
    from declutr.evaluation.text_files import read_lines, words

    files = {name.lower(): files[:2] for name, files in BINARY.items()}[task]
    if not isinstance(path, PathLike) or not Path(path).is_dir():
        raise SourceError(
            f"The task '{task}' is read from a folder with {files[0]} and {files[1]}, got "
            f"{str(path)!r}, which is no folder. Files of your own have task null."
        )
    rows: list[LabelledRow] = []
    for file, label in zip(files, ("1", "0"), strict=True):
        for line in read_lines(Path(path) / file):
            rows.append(LabelledRow(len(rows), (words(line),), label))
    return rows


def fraction_of_rows(
    labels: Sequence[str] | Sequence[float], fraction: float, seed: int
) -> list[int]:
    """Choose a stratified part of the rows.

    Of each class its share is chosen, rounded, but at least one row. Scores are divided into
    tenths, which have equal numbers of rows if no scores are equal. The choice depends only on the
    labels, the fraction and the seed. The rows of a smaller fraction are among those of a larger
    one.

    # Parameters

    labels : classes or scores, `(n,)`.
    fraction : above 0 and at most 1.
    seed : the seed of the choice.

    # Returns

    The numbers of the chosen rows, in ascending order.

    # Raises

    `ValueError` : the fraction is out of range, or there are no labels.
    """
    require_fraction(fraction)
    if not labels:
        raise ValueError("There are no labels of which label_fraction could keep a part.")
    strata = _strata(labels)
    order = shuffled(all_rows(len(labels)), (seed,))
    chosen: list[int] = []
    for stratum in np.unique(strata):
        members = order[strata[order] == stratum]
        count = max(1, int(fraction * len(members) + 0.5))
        chosen += members[:count].tolist()
    return sorted(chosen)


def require_fraction(fraction: float) -> None:
    """Raise `ValueError` unless a fraction is above 0 and at most 1."""
    if not 0 < fraction <= 1:
        raise ValueError(
            f"label_fraction is {fraction}, expected a share above 0 and at most 1, such as 0.1 "
            "for 10 %."
        )


def _strata(labels: Sequence[str] | Sequence[float]) -> np.ndarray:
    """Return the number of the class, or of the tenth of scores, of each row, `(n,)`."""
    values = np.array(labels)
    if values.dtype.kind != "f":
        return np.unique(values, return_inverse=True)[1]
    edges = np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1])
    return np.searchsorted(edges, values, side="right")  # equal scores get the same number
