"""Tasks of SentEval whose files have no columns: TREC, and those with a file a class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from declutr.corpus.documents import PathLike, SourceError, source_files
from declutr.task_models.glue.labelled_rows import LabelledRow

# What reads them in evaluation is imported with the first file: scikit-learn comes with it, and
# every command that knows this reader would wait for that.
TREC = "trec"
OF_CLASSES = ("mr", "cr", "subj", "mpqa")
SENTEVAL_TASKS = (TREC, *OF_CLASSES)


def read_senteval_rows(task: str, path: PathLike | Sequence[PathLike]) -> list[LabelledRow]:
    """The rows of one of `SENTEVAL_TASKS`, in order, those of class 1 first.

    Text is UTF-8 or, in older files, Latin-1; files with a byte order mark are in what it says.

    # Parameters

    path : of TREC the file, or several; of the others the folder of both files.

    # Raises

    `SourceError` : a file that is missing, empty or in another encoding, or a line without a class.
    """
    from declutr.evaluation.task import TaskError

    try:
        if task == TREC:
            return _questions(source_files(path))
        return _classes(task, path)
    except TaskError as error:
        raise SourceError(str(error)) from error


def _questions(files: Sequence[Path]) -> list[LabelledRow]:
    """`COARSE:fine question` a line; the coarse class is the label."""
    from declutr.evaluation.tasks.classification import TREC_CLASSES
    from declutr.evaluation.tasks.labelled_text import fields_of, label_of, words
    from declutr.evaluation.text_files import read_lines

    rows: list[LabelledRow] = []
    for file in files:
        for number, line in enumerate(read_lines(file), start=1):
            label, rest = fields_of(line.strip(), ":", 2, file, number)[0], line.partition(":")[2]
            label_of(label, TREC_CLASSES, file, number)
            rows.append(LabelledRow(len(rows), (words(rest.strip().partition(" ")[2]),), label))
    return rows


def _classes(task: str, path: PathLike | Sequence[PathLike]) -> list[LabelledRow]:
    """A file for each class, one sentence a line: that of class 1 first."""
    from declutr.evaluation.tasks.classification import BINARY
    from declutr.evaluation.tasks.labelled_text import words
    from declutr.evaluation.text_files import read_lines

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
