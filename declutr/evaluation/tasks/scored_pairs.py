"""Pairs of sentences that people scored for similarity: STS12-16, STS-B and SICK-R.

Where they lie in SentEval's data, how many there are, and what reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from declutr.evaluation.task import BrokenData, require_rows
from declutr.evaluation.text_files import fields_of, read_lines, senteval_order, words

STS_SUBSETS = {
    "STS12": {
        "MSRpar": 750,
        "MSRvid": 750,
        "SMTeuroparl": 459,
        "surprise.OnWN": 750,
        "surprise.SMTnews": 399,
    },
    # Without its subset SMT, whose licence keeps it from SentEval's data.
    "STS13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "STS14": {
        "deft-forum": 450,
        "deft-news": 300,
        "headlines": 750,
        "images": 750,
        "OnWN": 750,
        "tweet-news": 750,
    },
    "STS15": {
        "answers-forums": 375,
        "answers-students": 750,
        "belief": 375,
        "headlines": 750,
        "images": 750,
    },
    "STS16": {
        "answer-answer": 254,
        "headlines": 249,
        "plagiarism": 230,
        "postediting": 244,
        "question-question": 209,
    },
}
"""Subsets of each task and how many pairs of them have a gold score."""

STS_BENCHMARK = {"train": "sts-train.csv", "dev": "sts-dev.csv", "test": "sts-test.csv"}
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
STS_B_PAIRS = {"train": 5749, "dev": 1500, "test": 1379}
SICK_PAIRS = {"train": 4500, "dev": 500, "test": 4927}


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
        order = senteval_order([self.first, self.second], self.gold)
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
    return _table(path, enumerate(read_lines(path, published, latin_1=False), 1), 7, (5, 6, 4))


def read_sick(path: Path, published: int | None = None) -> ScoredPairs:
    """A split of SICK, after a heading: columns 2 and 3 are sentences, 4 is their relatedness.

    # Raises

    `MissingData`, `BrokenData`.
    """
    rows = list(enumerate(read_lines(path, published and published + 1, latin_1=False), 1))[1:]
    if not rows:
        raise BrokenData(f"{path} has a heading and no pair.")
    return _table(path, rows, 5, (1, 2, 3))


def _table(
    path: Path, rows: Iterable[tuple[int, str]], count: int, columns: tuple[int, int, int]
) -> ScoredPairs:
    """Numbered rows of at least `count` fields, of which `columns` are the pair and its score."""
    first, second, gold = columns
    return _pairs(
        (fields[first], fields[second], _score(fields[gold], path, number))
        for number, row in rows
        for fields in [fields_of(row, "\t", count, path, number)]
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


def benchmark_folders(data: Path) -> list[Path]:
    """`STSBenchmark`, there or not, and other folders beside it that hold its test file."""
    folder = data / "downstream" / "STS"
    main = folder / "STSBenchmark"
    found = (file.parent for file in folder.glob(f"*/{STS_BENCHMARK['test']}"))
    return [main, *sorted(path for path in found if path != main)]


def benchmark_files(folder: Path) -> dict[str, Path]:
    """The files of the splits in such a folder."""
    return {split: folder / file for split, file in STS_BENCHMARK.items()}


def benchmark_name(folder: Path) -> str:
    """`STS-B` for the published one; another goes by its own name, so that nobody confuses them."""
    return "STS-B" if folder.name == "STSBenchmark" else folder.name


def reader_of(folder: Path) -> Read:
    """What reads the splits of such a folder: of one not published, lengths tell nothing."""
    if folder.name == "STSBenchmark":
        return read_benchmark
    return lambda path, _published: read_benchmark(path)
