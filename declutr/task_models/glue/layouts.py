"""Layouts of the files of each task: the columns of texts and labels, and the valid labels.

These are the columns of GLUE's published files, numbered from 0. Test files have no label.

| task  | train and dev                       | test                | label                        |
|-------|-------------------------------------|---------------------|------------------------------|
| CoLA  | no header; label 1, sentence 3      | header; sentence 1  | 0, 1                         |
| SST-2 | sentence 0, label 1                 | sentence 1          | 0, 1                         |
| MRPC  | Quality 0, #1 String 3, #2 String 4 | #1 String 3, #2 4   | 0, 1                         |
| QQP   | question1 3, question2 4,           | question1 1,        | 0, 1                         |
|       | is_duplicate 5                      | question2 2         |                              |
| STS-B | sentence1 7, sentence2 8, score 9   | sentence1 7, ...2 8 | 0 to 5                       |
| MNLI  | sentence1 8, sentence2 9, gold_label| sentence1 8, ...2 9 | entailment, neutral,         |
|       | last (11 in train, 15 in dev)       |                     | contradiction                |
| QNLI  | question 1, sentence 2, label 3     | 1, 2                | entailment, not_entailment   |
| RTE   | sentence1 1, sentence2 2, label 3   | 1, 2                | entailment, not_entailment   |
| WNLI  | sentence1 1, sentence2 2, label 3   | 1, 2                | 0, 1                         |

Columns are found by their names, because their numbers differ between files; only CoLA has a file
without names. Matched and mismatched MNLI have the same columns, and so do the diagnostic set (AX)
and the original files of SNLI and MultiNLI. In JSON lines and parquet, columns have the names used
on the Hugging Face hub or those above, and classes are given by name or number.

In SentEval, SST (binary) is SST-2 without a header, and SICK is one file for two tasks.
"""

import math
from dataclasses import dataclass
from typing import Any

from declutr.corpus.documents import SourceError
from declutr.corpus.tables import Column, Row

UNLABELLED = ("", "-", "-1", "-1.0")
"""Values that mean "no label": it was not published, or the annotators did not agree."""


@dataclass(frozen=True)
class Classes:
    """A kind of labels that are classes.

    # Parameters

    names : the lowercase names, in the order of their numbers on the Hugging Face hub; by default
        any name is a class.
    unlabelled : values that mean "no label".
    """

    names: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = UNLABELLED

    def read(self, value: Any, place: str) -> str | None:
        """Return the name of a class that is given by name, in any case, or by number.

        # Returns

        The name, or `None` if there is no label.

        # Raises

        `SourceError` : the value is not one of the classes.
        """
        name = "" if value is None else str(value).strip()
        if name in self.unlabelled:
            return None
        if not isinstance(value, (str, int)):
            raise SourceError(
                f"{place}: the label is {value!r}, expected a class: a string or an int. Set "
                "labels to 'score' for numbers to be predicted."
            )
        if not self.names:
            return name
        if name.lower() in self.names:
            return name.lower()
        if name.isdecimal() and int(name) < len(self.names):
            return self.names[int(name)]
        raise SourceError(
            f"{place}: the label is {value!r}, expected one of {', '.join(self.names)} (or its "
            "number, from 0). Is this a file of another task?"
        )


@dataclass(frozen=True)
class Scores:
    """A kind of labels that are numbers.

    # Parameters

    lowest, highest : the range of valid scores.
    unlabelled : values that mean "no score".
    """

    lowest: float = -math.inf
    highest: float = math.inf
    unlabelled: tuple[str, ...] = UNLABELLED

    def read(self, value: Any, place: str) -> float | None:
        """Return a score as a float.

        # Returns

        The score, or `None` if there is none.

        # Raises

        `SourceError` : the value is not a finite number, or out of range.
        """
        if value is None or str(value).strip() in self.unlabelled:
            return None
        try:
            score = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            score = math.nan
        if not math.isfinite(score) or not self.lowest <= score <= self.highest:
            bounded = math.isfinite(self.lowest)
            expected = f" from {self.lowest:g} to {self.highest:g}" if bounded else ""
            raise SourceError(
                f"{place}: the label is {value!r}, expected a number{expected}. Is this a file of "
                "another task, or the label in another column?"
            )
        return score


@dataclass(frozen=True)
class Layout:
    """The columns of a file.

    # Parameters

    texts : for one text or two, the possible names of the column. Numbers, from 0, are for files
        without a header.
    label : the possible names or numbers of the column of the label.
    labels : the kind of labels.
    header : whether the first line of TSV and CSV names the columns. With `None`, it does if it
        contains the names of the texts. With `True`, columns can also be given by number.
    """

    texts: tuple[tuple[Column, ...], ...]
    label: tuple[Column, ...]
    labels: Classes | Scores
    header: bool | None = None

    def names_columns(self, fields: list[str]) -> bool:
        """Return whether the fields of a first line are a header."""
        if self.header is not None:
            return self.header
        return all(any(name in fields for name in names) for names in self.texts)

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """Return the one or two texts of a row.

        # Raises

        `SourceError` : a text has no column, or the column contains something other than text.
        """
        return tuple(row.text(_found(names, row)) for names in self.texts)

    def label_of(self, row: Row) -> str | float | None:
        """Return the label of a row, or `None` if there is none, as in test files of tasks.

        # Raises

        `SourceError` : the label is not a class or score of the task, or it has no column in a
            user's own file.
        """
        column = next((name for name in self.label if name in row.values), None)
        if column is None and self.label and self.header is not None:
            column = _found(self.label, row)  # raises the error about the missing column
        return None if column is None else self.labels.read(row.values[column], row.place)


def _found(names: tuple[Column, ...], row: Row) -> Column:
    for name in names:
        if name in row.values:
            return name
    found = [name for name in row.values if isinstance(name, str)]
    raise SourceError(
        f"{row.place}: no column {' or '.join(map(repr, names))}, found "
        f"{found or f'{len(row.values)} column(s) without a header, counted from 0'}. Is this a "
        "file of another task? Files of your own have task null, and texts and label that name "
        "their columns."
    )


_BINARY = Classes(("0", "1"))
_NLI = Classes(("entailment", "neutral", "contradiction"))
_TWO_WAY = Classes(("entailment", "not_entailment"))
_FIRST, _SECOND = ("sentence1", "premise"), ("sentence2", "hypothesis")

LAYOUTS = {
    "cola": Layout((("sentence", 3),), ("label", "is_acceptable", 1), _BINARY),
    "sst-2": Layout((("sentence", 0),), ("label", 1), _BINARY),
    "mrpc": Layout(
        (("#1 String", "sentence1"), ("#2 String", "sentence2")), ("Quality", "label"), _BINARY
    ),
    "qqp": Layout((("question1",), ("question2",)), ("is_duplicate", "label"), _BINARY),
    "sts-b": Layout((("sentence1",), ("sentence2",)), ("score", "label"), Scores(0, 5)),
    "mnli": Layout((_FIRST, _SECOND), ("gold_label", "label"), _NLI),
    "qnli": Layout((("question",), ("sentence",)), ("label",), _TWO_WAY),
    "rte": Layout((_FIRST, _SECOND), ("label",), _TWO_WAY),
    "wnli": Layout((_FIRST, _SECOND), ("label",), _BINARY),
    "sick-e": Layout(
        (("sentence_A",), ("sentence_B",)),
        ("entailment_judgment", "entailment_label", "label"),
        _NLI,
    ),
    "sick-r": Layout((("sentence_A",), ("sentence_B",)), ("relatedness_score",), Scores(1, 5)),
}
"""The layouts of the tasks, by the name of the task."""
