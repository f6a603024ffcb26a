"""Labelled texts of one's own: classification, few-shot, nearest neighbours and clustering."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from declutr.evaluation.classifiers.features import difference_and_product
from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Protocol, Task, Vectors
from declutr.evaluation.tasks.clustering import DRAWS, SAMPLE, Clustering
from declutr.evaluation.tasks.few_shot import DRAWS as SHOT_DRAWS
from declutr.evaluation.tasks.few_shot import SHOTS, FewShot
from declutr.evaluation.tasks.labelled_text import ClassificationTask, LabelledText, Part
from declutr.evaluation.tasks.nearest_neighbours import NEIGHBOURS, NearestNeighbours
from declutr.evaluation.tasks.table_rows import Column, TableRow
from declutr.evaluation.tasks.task_description import Description
from declutr.evaluation.text_files import words

VARIANTS = {kind.kind: kind for kind in (FewShot, NearestNeighbours, Clustering)}
"""Other scores of the data of a classification task, by what stands before its name."""
MOST_DRAWS = 10_000
"""The largest number of draws that a description may ask for."""


def classification(about: Description, protocol: Protocol) -> ClassificationTask:
    """Return the task of a description of type "classification", of texts or of pairs."""
    texts = about.columns("text", "text")
    if len(texts) > 2:
        raise about.wrong("text", "one column, or two for pairs")
    files = about.parts(("train", "dev", "test"), alone="train")
    if "train" not in files or ("dev" in files and "test" not in files):
        raise BrokenData(
            f'{about.path}: got {", ".join(files) or "no file"}, expected "file" alone, or "train" '
            'and "test", or "train", "dev" and "test".'
        )
    read = partial(_labelled, about, files, texts, about.column("label", "label"))
    return DescribedClassification(about.name, read, protocol, files["train"], len(texts) == 2)


class DescribedClassification(ClassificationTask):
    """A classification task of one's own, which is checked before anything is embedded."""

    def __init__(
        self,
        name: str,
        read: Callable[[], LabelledText],
        protocol: Protocol,
        file: Path,
        of_pairs: bool,
    ) -> None:
        combine = difference_and_product if of_pairs else None
        super().__init__(name, "extra", read, protocol, combine, (0, 1) if of_pairs else (0,))
        self._file = file

    def sentences(self) -> list[str]:
        self._require_folds()
        return super().sentences()

    def scores(self, vectors: Vectors) -> list[Score]:
        accuracy, *others = super().scores(vectors)
        return [accuracy, Score("macro F1", "macro_f1", accuracy.items), *others]

    def _require_folds(self) -> None:
        """Raise if no class is large enough for cross-validation, nested without a test part."""
        data, folds = self.data, self._protocol.kfold
        most = most_left = int(np.bincount(data.train.labels).max())
        if data.test is None:
            most_left -= -(-most // folds)  # a fold is left out, and the rest is split again
        if data.dev is None and most_left < folds:
            raise BrokenData(
                f"{self._file}: the largest class has {most} texts, too few for {folds}-fold "
                f"cross-validation{'' if data.test else ' within folds'}. Give more texts or a "
                '"dev" and a "test" file, or take the type "few-shot" or "knn".'
            )


def variant(kind: str) -> Callable[[Description, Protocol], Task]:
    """Return what makes a task of one of the `VARIANTS`."""

    def make(about: Description, protocol: Protocol) -> Task:
        source = classification(about, protocol)
        if kind == "few-shot":
            draws = about.number("draws", SHOT_DRAWS, MOST_DRAWS)
            return FewShot(source, protocol, about.numbers("shots", SHOTS), draws)
        if kind == "knn":
            return NearestNeighbours(source, protocol, about.numbers("neighbours", NEIGHBOURS))
        draws = about.number("draws", DRAWS, MOST_DRAWS)
        return Clustering(source, protocol, draws, about.number("sample", SAMPLE))

    return make


def _labelled(
    about: Description,
    files: Mapping[str, Path],
    texts: Sequence[Column],
    label: Column,
) -> LabelledText:
    """Read labelled texts; classes are numbered by number or else by name of the label."""
    rows = {name: about.rows(path, [*texts, label]) for name, path in files.items()}
    read = {name: _part(of_one, texts, label) for name, of_one in rows.items()}
    names = sorted(set(read["train"][1]), key=_by_number)
    if len(names) < 2:
        raise BrokenData(
            f"{files['train']}, column {label!r}: all labels are {names[0]!r}, expected at least "
            "two classes."
        )
    known = {name: number for number, name in enumerate(names)}
    parts = {}
    for name, (columns, labels) in read.items():
        for row, of_row in zip(rows[name], labels, strict=True):
            if of_row not in known:
                row.refuse(label, f"a label of {files['train'].name} ({_some(names)})")
        parts[name] = Part(columns, [known[of_row] for of_row in labels])
    return LabelledText(len(names), parts["train"], parts.get("dev"), parts.get("test"))


def _part(
    rows: Sequence[TableRow], texts: Sequence[Column], label: Column
) -> tuple[tuple[list[str], ...], list[str]]:
    columns = tuple([words(row.text(column)) for row in rows] for column in texts)
    return columns, [row.label(label) for row in rows]


def _by_number(label: str) -> tuple[bool, float, str]:
    number = re.fullmatch(r"-?\d{1,300}", label) is not None
    return not number, int(label) if number else 0, label


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
