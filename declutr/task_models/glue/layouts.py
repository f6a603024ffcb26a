"""Where texts and labels are in the files of each task, and what a label is.

The columns of GLUE's published files, numbered from 0; test files have no label:

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

Columns are found by their names, which stay where numbers move; only CoLA has a file without any.
Matched and mismatched MNLI have the same columns, as do the diagnostic set (AX) and the files of
SNLI and MultiNLI themselves. JSON lines and parquet have the names of the Hugging Face hub or those
above, and classes by name or number.

Of SentEval, SST (binary) is SST-2 without a header, and SICK is one file for two tasks.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any

from declutr.corpus.documents import SourceError
from declutr.corpus.tables import Column, Row

UNLABELLED = ("", "-", "-1", "-1.0")
"""No label: none published, or annotators did not agree."""


@dataclass(frozen=True)
class Classes:
    """Classes by name.

    # Parameters

    names : in the order of their numbers on the Hugging Face hub; by default any is a class.
    unlabelled : what stands where there is no label.
    """

    names: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = UNLABELLED

    def read(self, value: Any, place: str) -> str | None:
        """The name of a class, given by name (in any case) or number; `None` for no label.

        # Raises

        `SourceError` : it is none of the classes.
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
    """Numbers from `lowest` to `highest`.

    # Parameters

    unlabelled : what stands where there is no score.
    """

    lowest: float = -math.inf
    highest: float = math.inf
    unlabelled: tuple[str, ...] = UNLABELLED

    def read(self, value: Any, place: str) -> float | None:
        """The score; `None` for none.

        # Raises

        `SourceError` : it is no finite number, or out of range.
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

    texts : of one text or two: the names that each may have. Numbers, from 0, are for files
        without a header.
    label : the same of the label.
    labels : what a label is.
    header : whether the first line of TSV and CSV names the columns; `None` looks whether it holds
        the names of the texts. With `True`, numbers count as well.
    """

    texts: tuple[tuple[Column, ...], ...]
    label: tuple[Column, ...]
    labels: Classes | Scores
    header: bool | None = None

    def names_columns(self, fields: list[str]) -> bool:
        """Whether these fields of a first line are a header."""
        if self.header is not None:
            return self.header
        return all(any(name in fields for name in names) for names in self.texts)

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """# Raises

        `SourceError` : a text has no column, or something else than text in it.
        """
        return tuple(row.text(_found(names, row)) for names in self.texts)

    def label_of(self, row: Row) -> str | float | None:
        """`None` if there is none, as in test files of tasks.

        # Raises

        `SourceError` : the label is no class or score of the task, or has no column in a file of
            one's own.
        """
        column = next((name for name in self.label if name in row.values), None)
        if column is None and self.label and self.header is not None:
            column = _found(self.label, row)  # says that it is not there
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
"""By task."""


def own_layout(
    texts: tuple[Column, ...], label: Column | None, scores: bool, header: bool | None
) -> Layout:
    """The layout of one's own files. An empty label is none; every other one counts.

    # Parameters

    texts, label : columns, by name or by number from 0.
    scores : labels are numbers, not classes.
    header : by default, there is one unless a column is given by number.
    """
    columns = texts if label is None else (*texts, label)
    if header is None:
        header = not any(isinstance(column, int) for column in columns)
    return Layout(
        tuple((column,) for column in texts),
        () if label is None else (label,),
        Scores(unlabelled=("",)) if scores else Classes(unlabelled=("",)),
        header,
    )


def task_name(task: str, known: list[str]) -> str:
    """The one of `known` that is meant: case, hyphens and underscores do not count.

    # Raises

    `SourceError` : none is.
    """
    plain = {_plain(name): name for name in known}
    if _plain(task) in plain:
        return plain[_plain(task)]
    close = difflib.get_close_matches(_plain(task), plain, n=1)
    hint = f" Did you mean '{plain[close[0]]}'?" if close else ""
    raise SourceError(
        f"No task '{task}': expected one of {', '.join(known)}, or null for files of your own, "
        f"with texts and label that name their columns.{hint}"
    )


def _plain(task: str) -> str:
    return task.lower().replace("-", "").replace("_", "")
