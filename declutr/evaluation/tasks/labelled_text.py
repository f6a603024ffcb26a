"""Sentences or pairs of sentences with class labels, and the task of predicting the labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from declutr.corpus import normalize_whitespace
from declutr.evaluation import text_files
from declutr.evaluation.classifiers import features
from declutr.evaluation.scores import Score
from declutr.evaluation.task import Protocol, Task, Vectors

if TYPE_CHECKING:  # classifiers import torch and scikit-learn, for which other tasks need not wait
    from declutr.evaluation.classifiers.cross_validation import Outcome


@dataclass
class Part:
    """A split of a data set, or all of a data set without splits."""

    columns: tuple[list[str], ...]
    """One list of sentences, or two lists if items are pairs `[0][i]` and `[1][i]`."""
    labels: list[int]
    """The class number of each item."""

    def __len__(self) -> int:
        return len(self.labels)

    def label_key(self, label: int) -> int | str:
        """Return the value that items with equal numbers of words are sorted by."""
        return label

    def sorted(self, by: Sequence[int]) -> Part:
        """Return the part in SentEval's order, on which the draws of folds and batches depend.

        Items are sorted by the number of words in the columns `by`, then by label; others keep
        their order. Blank sentences count as no words and are replaced by a full stop.
        """
        keys = map(self.label_key, self.labels)
        order = text_files.senteval_order([self.columns[column] for column in by], keys)
        columns = tuple([text_files.words(column[row]) for row in order] for column in self.columns)
        return Part(columns, [self.labels[row] for row in order])


@dataclass
class LabelledText:
    """A data set in `train` alone, in `train` and `test`, or in `train`, `dev` and `test`."""

    classes: int
    """The number of classes."""
    train: Part
    dev: Part | None = None
    test: Part | None = None
    notes: list[str] = field(default_factory=list)
    """Remarks for a reader of the scores."""

    @property
    def parts(self) -> list[Part]:
        """The parts that there are: train, development and test."""
        return [part for part in (self.train, self.dev, self.test) if part is not None]

    @property
    def tested(self) -> Part:
        """The part that scores are computed on."""
        return self.train if self.test is None else self.test


class ClassificationTask(Task):
    """The accuracy of a classifier that is trained on embeddings in SentEval's protocol.

    # Parameters

    name, group : see `Task`.
    read : reads the data.
    protocol : SentEval's settings.
    combine : makes features of the embeddings of pairs; None for single sentences.
    sort_by : numbers of columns, see `Part.sorted`.
    penalised : search for the best L2 penalty; otherwise, use none.
    f1 : add the F1 of class 1, and the mean of accuracy and F1.
    """

    def __init__(
        self,
        name: str,
        group: str,
        read: Callable[[], LabelledText],
        protocol: Protocol,
        combine: features.Combine | None = None,
        sort_by: Sequence[int] = (0,),
        penalised: bool = True,
        f1: bool = False,
    ) -> None:
        super().__init__(name, group, "accuracy")
        # Digests of stored results have these names in them.
        self._read, self._protocol, self._combine = read, protocol, combine
        self._sort_by, self._penalised, self._f1 = sort_by, penalised, f1
        self._data: LabelledText | None = None

    @property
    def read(self) -> Callable[[], LabelledText]:
        """The function that reads the data."""
        return self._read

    @property
    def combine(self) -> features.Combine | None:
        """The function that makes features of the embeddings of pairs, or None."""
        return self._combine

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
        """The data set in SentEval's order, read on first use."""
        if self._data is None:
            data = self._read()
            for part in ("train", "dev", "test"):
                if getattr(data, part) is not None:
                    setattr(data, part, getattr(data, part).sorted(self._sort_by))
            self._data = data
        return self._data

    def _outcome(self, vectors: Vectors) -> Outcome:
        from declutr.evaluation.classifiers.classifiers import learner
        from declutr.evaluation.classifiers.cross_validation import kfold, nested_kfold, split

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

    def _features(self, vectors: Vectors) -> features.Features:
        columns = [
            [text for part in self.data.parts for text in part.columns[number]]
            for number in range(len(self.data.train.columns))
        ]
        if self._combine is None:
            return features.sentence_features(columns[0], vectors)
        return features.pair_features(columns[0], columns[1], self._combine, vectors)


Parse = Callable[[str, Path, int], tuple[str, ...]]
"""A function from a line, its file and its number (for errors) to its label and its sentences."""


def columns_parser(separator: str, count: int, label: int, *sentences: int) -> Parse:
    """Make a parser of lines of at least `count` fields, by indices of label and sentences."""

    def parse(line: str, path: Path, number: int) -> tuple[str, ...]:
        fields = text_files.fields_of(line.strip(), separator, count, path, number)
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
    """Read a data set from UTF-8 files with an item on each line.

    # Parameters

    kind, published : see `other_sizes`.
    paths : files of the training, development (if there is one) and test part, by name.
    known : class numbers by label.
    parse : returns the label and the sentences of a line.
    heading : whether each file starts with a header.

    # Raises

    `MissingData` : a file does not exist.
    `BrokenData` : a file has wrong content.
    """

    def read(name: str, path: Path) -> Part:
        lines = enumerate(text_files.read_lines(path, published[name] + heading, latin_1=False), 1)
        rows = ((n, *parse(line, path, n)) for n, line in lines if n > heading)
        return labelled_part(path, known, rows)

    parts = {name: read(name, path) for name, path in paths.items()}
    return labelled_text(kind, len(known), parts, published)


def labelled_part(
    path: Path, known: Mapping[str, int], rows: Iterable[tuple[Any, ...]], every_class: bool = True
) -> Part:
    """Make a part of the rows of a file.

    # Parameters

    path : the file, for errors.
    known : class numbers by label; any other label raises `BrokenData`.
    rows : the number of the line, the label and the sentences of each item.
    every_class : whether a label that does not occur raises `BrokenData` as well.
    """
    labels, texts = [], []
    for number, label, *sentences in rows:
        texts.append([normalize_whitespace(sentence) for sentence in sentences])
        labels.append(text_files.label_of(label, known, path, number))
    if every_class:
        text_files.require_all_labels(path, labels, known)
    return Part(tuple(map(list, zip(*texts, strict=True))), labels)


def labelled_text(
    kind: str, classes: int, parts: Mapping[str, Part], published: Mapping[str, int]
) -> LabelledText:
    """Make a data set of its parts: training, development (if there is one) and test, in order.

    `classes` is the number of classes. For `kind` and `published` see `other_sizes`, whose notes
    become notes of the data set.
    """
    train, *dev, test = parts.values()
    notes = text_files.other_sizes(kind, parts, published)
    return LabelledText(classes, train, dev[0] if dev else None, test, notes)
