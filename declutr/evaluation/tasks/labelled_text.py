"""Sentences, or pairs of them, with classes; and the task of telling the classes apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from declutr.evaluation.classifiers.classifiers import learner
from declutr.evaluation.classifiers.cross_validation import Outcome, kfold, nested_kfold, split
from declutr.evaluation.classifiers.features import (
    Combine,
    Features,
    pair_features,
    sentence_features,
)
from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Protocol, Task, Vectors
from declutr.evaluation.text_files import read_lines as read_lines  # its place in 1.5.0


@dataclass
class Part:
    """A split of a data set, or all of it."""

    columns: tuple[list[str], ...]
    """One list of sentences, or two of which `[0][i]` and `[1][i]` are a pair. Blank ones, which
    have no word, become a full stop when they are `sorted`."""
    labels: list[int]

    def label_key(self, label: int) -> int | str:
        """What is compared where lengths are equal: the number of a label."""
        return label

    def sorted(self, by: Sequence[int]) -> Part:
        """By the number of words in some columns, then by label, otherwise as they came: SentEval's
        order, which decides what the draws of cross-validation and of batches mean."""

        def key(row: int) -> tuple[int | str, ...]:
            lengths = (len(self.columns[column][row].split()) for column in by)
            return (*lengths, self.label_key(self.labels[row]))

        order = sorted(range(len(self.labels)), key=key)
        columns = tuple([words(column[row]) for row in order] for column in self.columns)
        return Part(columns, [self.labels[row] for row in order])


@dataclass
class LabelledText:
    """A data set: all in `train`, or with a `test` part, or with `dev` and `test`."""

    classes: int
    train: Part
    dev: Part | None = None
    test: Part | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def parts(self) -> list[Part]:
        return [part for part in (self.train, self.dev, self.test) if part is not None]


class ClassificationTask(Task):
    """Accuracy of a classifier on top of embeddings, in SentEval's protocol.

    # Parameters

    read : reads the data.
    protocol : SentEval's settings.
    combine : makes features of the embeddings of pairs; None for single sentences.
    sort_by : columns, see `Part.sorted`.
    penalised : search for an L2 penalty, or use none.
    f1 : add the F1 of class 1, and the mean of accuracy and F1.
    """

    def __init__(
        self,
        name: str,
        group: str,
        read: Callable[[], LabelledText],
        protocol: Protocol,
        combine: Combine | None = None,
        sort_by: Sequence[int] = (0,),
        penalised: bool = True,
        f1: bool = False,
    ) -> None:
        super().__init__(name, group, "accuracy")
        self._read, self._protocol, self._combine = read, protocol, combine
        self._sort_by, self._penalised, self._f1 = sort_by, penalised, f1
        self._data: LabelledText | None = None

    def sentences(self) -> list[str]:
        return [text for part in self.data.parts for column in part.columns for text in column]

    def scores(self, vectors: Vectors) -> list[Score]:
        outcome = self._outcome(vectors)
        tested = self.data.test or self.data.train
        items = {"predicted": outcome.predicted, "gold": np.array(tested.labels)}
        names = ["accuracy", *(["f1", "accuracy_and_f1"] if self._f1 else [])]
        scores = [Score(name, name, items) for name in names]
        return [*scores, Score("dev_accuracy", "mean", {"value": outcome.dev})]

    def notes(self) -> list[str]:
        return self.data.notes

    @property
    def data(self) -> LabelledText:
        if self._data is None:
            data = self._read()
            for part in ("train", "dev", "test"):
                if getattr(data, part) is not None:
                    setattr(data, part, getattr(data, part).sorted(self._sort_by))
            self._data = data
        return self._data

    def _outcome(self, vectors: Vectors) -> Outcome:
        data = self.data
        labels = np.array([label for part in data.parts for label in part.labels])
        trained = learner(self._features(vectors), labels, data.classes, self._protocol)
        ends = np.cumsum([len(part.labels) for part in data.parts])
        rows = np.split(np.arange(len(labels)), ends[:-1])
        if data.test is None:
            return nested_kfold(trained, rows[0])
        if data.dev is None:
            return kfold(trained, rows[0], rows[1])
        return split(trained, rows[0], rows[1], rows[2], self._penalised)

    def _features(self, vectors: Vectors) -> Features:
        columns = [
            [text for part in self.data.parts for text in part.columns[number]]
            for number in range(len(self.data.train.columns))
        ]
        if self._combine is None:
            return sentence_features(columns[0], vectors)
        return pair_features(columns[0], columns[1], self._combine, vectors)


def spaced(text: str) -> str:
    """A sentence with single spaces, `""` for a blank one."""
    return " ".join(text.split())


def words(text: str) -> str:
    """A sentence with single spaces; a full stop for an empty one, which no encoder likes."""
    return spaced(text) or "."


def label_of(label: str, known: Mapping[str, int], path: Path, line: int) -> int:
    """# Raises

    `BrokenData` : the label of a line, counted from 1, is not known.
    """
    if label not in known:
        raise BrokenData(
            f"{path}, line {line}: got the label {label[:40]!r}, expected one of {sorted(known)}."
        )
    return known[label]


def fields_of(text: str, separator: str, count: int, path: Path, line: int) -> list[str]:
    """The fields of a line, which has at least `count`.

    # Raises

    `BrokenData` : it has fewer.
    """
    fields = text.split(separator)
    if len(fields) < count:
        raise BrokenData(
            f"{path}, line {line}: expected {count} fields, got {len(fields)} in {text[:60]!r}."
        )
    return fields


def require_all_labels(path: Path, labels: Sequence[int], known: Mapping[str, int]) -> None:
    """# Raises

    `BrokenData` : a class does not occur.
    """
    missing = [label for label, number in known.items() if number not in set(labels)]
    if missing:
        raise BrokenData(f"{path} has no item of class {missing}; it may have been cut off.")


def other_size(kind: str, got: int, published: int) -> list[str]:
    """A note that a data set is not of the published size."""
    if got == published:
        return []
    return [f"{got:,} {kind} where the published data has {published:,}: compare with care"]
