"""Sentences, or pairs of them, with classes; and the task of telling the classes apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
from declutr.evaluation.task import Protocol, Task, Vectors
from declutr.evaluation.text_files import (
    fields_of,
    label_of,
    other_sizes,
    read_lines,
    require_all_labels,
    senteval_order,
    spaced,
    words,
)


@dataclass
class Part:
    """A split of a data set, or all of it."""

    columns: tuple[list[str], ...]
    """One list of sentences, or two of which `[0][i]` and `[1][i]` are a pair. Blank ones, which
    have no word, become a full stop when they are `sorted`."""
    labels: list[int]

    def __len__(self) -> int:
        return len(self.labels)

    def label_key(self, label: int) -> int | str:
        """What is compared where lengths are equal: the number of a label."""
        return label

    def sorted(self, by: Sequence[int]) -> Part:
        """By the number of words in some columns, then by label, otherwise as they came: SentEval's
        order, which decides what the draws of cross-validation and of batches mean."""

        keys = map(self.label_key, self.labels)
        order = senteval_order([self.columns[column] for column in by], keys)
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

    @property
    def tested(self) -> Part:
        """The part that the scores are of."""
        return self.train if self.test is None else self.test


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
        items = {"predicted": outcome.predicted, "gold": np.array(self.data.tested.labels)}
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
        ends = np.cumsum([len(part) for part in data.parts])
        rows = np.split(np.arange(len(labels)), ends[:-1])
        if data.test is None:
            return nested_kfold(trained, *rows)
        if data.dev is None:
            return kfold(trained, *rows)
        return split(trained, rows[0], rows[1], rows[2], self._penalised)

    def _features(self, vectors: Vectors) -> Features:
        columns = [
            [text for part in self.data.parts for text in part.columns[number]]
            for number in range(len(self.data.train.columns))
        ]
        if self._combine is None:
            return sentence_features(columns[0], vectors)
        return pair_features(columns[0], columns[1], self._combine, vectors)


Parse = Callable[[str, Path, int], tuple[str, ...]]
"""The label and the sentences of a line; its file and its number are for errors."""


def columns_parser(separator: str, count: int, label: int, *sentences: int) -> Parse:
    """Parse lines of at least `count` fields: which of them is the label, which are sentences."""

    def parse(line: str, path: Path, number: int) -> tuple[str, ...]:
        fields = fields_of(line.strip(), separator, count, path, number)
        return tuple(fields[column] for column in (label, *sentences))

    return parse


def read_labelled_text(
    kind: str,
    paths: Mapping[str, Path],
    published: Mapping[str, int],
    known: Mapping[str, int],
    parse: Parse,
    heading: bool = False,
) -> LabelledText:
    """Read a data set from UTF-8 files, an item a line.

    # Parameters

    kind, published : see `other_sizes`.
    paths : of the training, development (if there is one) and test part, by name.
    known : numbers of labels.
    heading : whether the first line of a file is no item.

    # Raises

    `MissingData`, `BrokenData`.
    """

    def read(name: str, path: Path) -> Part:
        lines = enumerate(read_lines(path, published[name] + heading, latin_1=False), 1)
        rows = ((n, *parse(line, path, n)) for n, line in lines if n > heading)
        return labelled_part(path, known, rows)

    parts = {name: read(name, path) for name, path in paths.items()}
    return labelled_text(kind, len(known), parts, published)


def labelled_part(
    path: Path,
    known: Mapping[str, int],
    rows: Iterable[tuple[Any, ...]],
    every_class: bool = True,
) -> Part:
    """Make a part of rows of a file: the number of the line, the label, the sentences.

    # Parameters

    every_class : whether each of the labels has to occur.

    # Raises

    `BrokenData` : a label is not known, or does not occur.
    """
    labels, texts = [], []
    for number, label, *sentences in rows:
        texts.append([spaced(sentence) for sentence in sentences])
        labels.append(label_of(label, known, path, number))
    if every_class:
        require_all_labels(path, labels, known)
    return Part(tuple(map(list, zip(*texts, strict=True))), labels)


def labelled_text(
    kind: str, classes: int, parts: Mapping[str, Part], published: Mapping[str, int]
) -> LabelledText:
    """Make a data set of its training, development (if there is one) and test part, in this order.

    # Parameters

    kind, published : see `other_sizes`, whose notes it has.
    """
    train, *dev, test = parts.values()
    notes = other_sizes(kind, parts, published)
    return LabelledText(classes, train, dev[0] if dev else None, test, notes)
