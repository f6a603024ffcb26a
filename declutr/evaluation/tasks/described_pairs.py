"""Pairs of texts of one's own: with scores, with two classes, or in two languages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Protocol, Task, Vectors
from declutr.evaluation.tasks.bitext_mining import ParallelTexts
from declutr.evaluation.tasks.pair_classification import JudgedPairs
from declutr.evaluation.tasks.relatedness import Relatedness, SubsetSimilarity
from declutr.evaluation.tasks.scored_pairs import ScoredPairs, pairs_of
from declutr.evaluation.tasks.scored_parts import ScoredParts
from declutr.evaluation.tasks.table_rows import Column, TableRow
from declutr.evaluation.tasks.task_description import Description
from declutr.evaluation.text_files import words

Subsets = dict[str, ScoredPairs]
"""Pairs by subset; the name of the only one may be empty."""

_BELONG = {"1": 1, "0": 0, "true": 1, "false": 0, "yes": 1, "no": 0}
_HIGHEST = 5.0  # the scores that the regressor of SentEval knows are 0 to 5


def similarity(about: Description, protocol: Protocol) -> Task:
    """Return the task of a description of type "sts"."""
    texts = _two_columns(about)
    files = about.parts_of_subsets(("train", "dev", "test"))
    score = about.column("score", "score")
    read = partial(_scored, about, files, texts, score)
    several = any(_has_subsets(about, of_one) for of_one in files.values())
    if "train" in files and (several or "dev" not in files):
        raise about.wrong("train", 'no such file: a regressor needs "dev" too, and has no subsets')
    if "train" in files and protocol.regressor:
        return TrainedSimilarity(about.name, read, protocol)
    return Similarity(about.name, read, several)


class Similarity(Task):
    """The correlation of cosines with scores, in one or several subsets, such as languages.

    # Parameters

    name : see `Task`.
    read : reads the pairs by part (`test`, and `dev` if there is one), then by subset.
    several : whether there are subsets; the main score is then the mean over them.
    """

    def __init__(self, name: str, read: Callable[[], dict[str, Subsets]], several: bool) -> None:
        super().__init__(name, "sts", "mean Spearman" if several else "cosine Spearman")
        self._read, self._several = read, several

    @cached_property
    def _parts(self) -> "dict[str, _Correlated]":
        read = self._read()
        return {part: _Correlated(read[part]) for part in ("test", "dev") if part in read}

    def sentences(self) -> list[str]:
        return [text for part in self._parts.values() for text in part.sentences()]

    def scores(self, vectors: Vectors) -> list[Score]:
        found = []
        for name, part in self._parts.items():
            scores = part.scores(vectors)
            if not self._several:  # all conventions are the same number
                scores = [s for s in scores if s.name.startswith("all ")]
                scores = [replace(s, name=f"cosine {s.name.split()[1]}") for s in scores]
            ending = "" if name == "test" else f" {name}"
            found += [replace(score, name=score.name + ending) for score in scores]
        return found

    def notes(self) -> list[str]:
        return [_sizes(self._parts["test"].pairs)]


class _Correlated(SubsetSimilarity):
    """The correlations of a part, in all conventions of STS12-16."""

    def __init__(self, pairs: Subsets) -> None:
        super().__init__("", Path(), {})
        self.pairs = pairs

    @cached_property
    def _pairs(self) -> Subsets:
        return self.pairs


class TrainedSimilarity(Relatedness):
    """The correlation of cosines with scores, and of SentEval's regressor, as on STS-B.

    # Parameters

    name : see `Task`.
    read : reads the pairs by part (`train`, `dev` and `test`), each of a single subset.
    protocol : the settings of the regressor.
    """

    def __init__(
        self, name: str, read: Callable[[], dict[str, Subsets]], protocol: Protocol
    ) -> None:
        super().__init__(name, {}, _from_no_file, protocol, {})
        self._read_parts = read

    @cached_property
    def _splits(self) -> dict[str, ScoredPairs]:
        parts = {
            part: pairs
            for part, subsets in self._read_parts().items()
            for pairs in subsets.values()
        }
        low, high = parts["train"].gold.min(), parts["train"].gold.max()
        if low >= 0 and 1 < high <= _HIGHEST:
            return parts
        # Correlations do not change with the scale, but the regressor has five classes.
        scale = _HIGHEST / (high - low)
        return {part: replace(p, gold=(p.gold - low) * scale) for part, p in parts.items()}

    def notes(self) -> list[str]:
        return [_sizes({"": self._splits["test"]})]


def _from_no_file(path: Path, published: int | None) -> ScoredPairs:
    raise NotImplementedError


def _sizes(subsets: Subsets) -> str:
    sizes = [f"{len(p):,} pairs{f' in {name}' if name else ''}" for name, p in subsets.items()]
    return f"{', '.join(sizes)}."


def _two_columns(about: Description) -> list[Column]:
    texts = about.columns("text", "sentence1", "sentence2")
    if len(texts) != 2:
        raise about.wrong("text", "a list of two columns")
    return texts


FilesOfParts = Mapping[str, Mapping[str, Path]]
"""Files by part, then by subset; see `Description.parts_of_subsets`."""


def _has_subsets(about: Description, files: Mapping[str, Path]) -> bool:
    return "subset" in about.keys or list(files) != [""]


def _rows_by_subset(
    about: Description, files: Mapping[str, Path], needed: Sequence[Column]
) -> dict[str, list[TableRow]]:
    """Read rows by subset: that of the file, and that in the column `subset`."""
    subset = about.column("subset", "subset") if "subset" in about.keys else None
    needed = [*needed, *([] if subset is None else [subset])]
    rows: dict[str, list[TableRow]] = {}
    for name, path in files.items():
        for row in about.rows(path, needed):
            of_row = "" if subset is None else row.label(subset)
            rows.setdefault(" ".join(filter(None, (name, of_row))), []).append(row)
    return rows


def _scored(
    about: Description, files: FilesOfParts, texts: Sequence[Column], score: Column
) -> dict[str, Subsets]:
    """Read pairs by part, then by subset."""
    found: dict[str, Subsets] = {}
    for part, of_part in files.items():
        rows = _rows_by_subset(about, of_part, [*texts, score])
        found[part] = {
            name: pairs_of((*map(row.text, texts), row.number(score)) for row in of_one)  # type: ignore[misc]
            for name, of_one in rows.items()
        }
        for name, pairs in found[part].items():
            if len(np.unique(pairs.gold)) < 2:
                raise BrokenData(
                    f"{_place(of_part, name)}, column {score!r}: all {len(pairs)} scores are "
                    f"{pairs.gold[0]:g}, expected two different ones or more, for a correlation."
                )
    return found


def _place(files: Mapping[str, Path], subset: str) -> str:
    return ", ".join(map(str, files.values())) + (f", subset {subset!r}" if subset else "")


def bitext_mining(about: Description, protocol: Protocol) -> Task:
    """Return the task of a description of type "bitext-mining"."""
    texts = _two_columns(about)
    files = about.parts_of_subsets(("test", "dev"))
    read = partial(_parallel, about, files, texts)
    main = "mean F1" if _has_subsets(about, files["test"]) else "F1"
    return ScoredParts(about.name, "bitext-mining", main, read)


def _parallel(
    about: Description, files: FilesOfParts, texts: Sequence[Column]
) -> dict[str, ParallelTexts]:
    found = {}
    for part, of_part in files.items():
        rows = _rows_by_subset(about, of_part, texts)
        for name, of_one in rows.items():
            if len(of_one) < 2:
                raise BrokenData(
                    f"{_place(of_part, name)}: got one pair, expected two or more, so that there "
                    "is something to choose from."
                )
        sides = [
            {name: [words(row.text(column)) for row in of_one] for name, of_one in rows.items()}
            for column in texts
        ]
        found[part] = ParallelTexts(*sides)
    return found


def pair_classification(about: Description, protocol: Protocol) -> Task:
    """Return the task of a description of type "pair-classification"."""
    texts = _two_columns(about)
    files = about.parts(("test", "dev"))
    given = about.keys.get("positive", [])
    positive = {str(label).strip() for label in (given if isinstance(given, list) else [given])}
    label = about.column("label", "label")
    read = partial(_judged, about, files, texts, label, positive)
    return ScoredParts(about.name, "pairs", "max AP", read)


def _judged(
    about: Description,
    files: Mapping[str, Path],
    texts: Sequence[Column],
    label: Column,
    positive: set[str],
) -> dict[str, JudgedPairs]:
    found = {}
    for part, path in files.items():
        rows = about.rows(path, [*texts, label])
        gold = np.array([_belongs(row, label, positive) for row in rows])
        if len(np.unique(gold)) < 2:
            which = "all" if gold[0] else "none"
            raise BrokenData(
                f"{path}, column {label!r}: {which} of {len(gold)} pairs belong together, "
                'expected some that do and some that do not. Check "positive" of the description.'
            )
        first, second = ([words(row.text(column)) for row in rows] for column in texts)
        found[part] = JudgedPairs(first, second, gold)
    return found


def _belongs(row: TableRow, column: Column, positive: set[str]) -> int:
    label = row.label(column)
    if positive:
        return int(label in positive)
    if label.lower() not in _BELONG:
        row.refuse(
            column,
            '1 or 0, true or false, yes or no (or "positive" in the description, the label of '
            "pairs that belong together)",
        )
    return _BELONG[label.lower()]
