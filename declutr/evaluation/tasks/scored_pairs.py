"""Pairs of sentences that people scored for similarity, from the files SentEval reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from declutr.evaluation.task import BrokenData, require_rows
from declutr.evaluation.tasks.labelled_text import fields_of, words
from declutr.evaluation.text_files import read_lines


@dataclass(frozen=True)
class ScoredPairs:
    """Sentences `first[i]` and `second[i]`, and how similar people found them."""

    first: list[str]
    second: list[str]
    gold: np.ndarray
    """`(n,)` float64, from 0 to 5."""

    def __len__(self) -> int:
        return len(self.first)

    def sorted(self) -> ScoredPairs:
        """By the number of words of either sentence, then by score: SentEval's order, which decides
        what the draws of batches mean."""
        key = [
            (len(first.split()), len(second.split()), gold)
            for first, second, gold in zip(self.first, self.second, self.gold, strict=True)
        ]
        order = sorted(range(len(self)), key=key.__getitem__)
        first, second = ([texts[row] for row in order] for texts in (self.first, self.second))
        return ScoredPairs(first, second, self.gold[order])

    @property
    def sentences(self) -> list[str]:
        return [*self.first, *self.second]


Read = Callable[[Path, int | None], ScoredPairs]
"""Reads a file, which was published with so many pairs; with none, it is no published one."""


def read_sts_subset(folder: Path, subset: str) -> ScoredPairs:
    """A subset of STS12-16: sentences in `STS.input.X.txt`, scores in `STS.gs.X.txt`.

    A blank score is of a pair that was never annotated: such pairs are left out. Input files of
    STS16 have more columns than the two sentences.

    # Raises

    `MissingData`, `BrokenData`.
    """
    sentences, scores = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
    rows, golds = (read_lines(path, latin_1=False) for path in (sentences, scores))
    require_rows(scores, len(golds), len(rows))
    lines = zip(rows, golds, strict=True)
    scored = [(number, row, gold) for number, (row, gold) in enumerate(lines, 1) if gold.strip()]
    if not scored:
        raise BrokenData(f"{scores} has no score, expected one a line for {sentences.name}.")
    return _pairs(
        (fields[0], fields[1], _score(gold, scores, number))
        for number, row, gold in scored
        for fields in [fields_of(row, "\t", 2, sentences, number)]
    )


def read_benchmark(path: Path, published: int | None = None) -> ScoredPairs:
    """A split of STS-B: of at least 7 columns, 5 is the score and 6 and 7 are the sentences.

    # Raises

    `MissingData`, `BrokenData`.
    """
    return _pairs(
        (fields[5], fields[6], _score(fields[4], path, number))
        for number, row in enumerate(read_lines(path, published, latin_1=False), 1)
        for fields in [fields_of(row, "\t", 7, path, number)]
    )


def read_other_benchmark(path: Path, _published: int | None = None) -> ScoredPairs:
    """The same of a file that is not the published one, so that its length tells nothing."""
    return read_benchmark(path)


def read_sick(path: Path, published: int | None = None) -> ScoredPairs:
    """A split of SICK, after a heading: columns 2 and 3 are sentences, 4 is their relatedness.

    # Raises

    `MissingData`, `BrokenData`.
    """
    rows = list(enumerate(read_lines(path, published and published + 1, latin_1=False), 1))[1:]
    if not rows:
        raise BrokenData(f"{path} has a heading and no pair.")
    return _pairs(
        (fields[1], fields[2], _score(fields[3], path, number))
        for number, row in rows
        for fields in [fields_of(row, "\t", 5, path, number)]
    )


def _pairs(rows: Iterable[tuple[str, str, float]]) -> ScoredPairs:
    first, second, gold = zip(*rows, strict=True)
    return ScoredPairs([*map(words, first)], [*map(words, second)], np.array(gold))


def _score(text: str, path: Path, number: int) -> float:
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not 0 <= score <= 5:
        raise BrokenData(f"{path}, line {number}: expected a score from 0 to 5, got {text[:40]!r}.")
    return score
