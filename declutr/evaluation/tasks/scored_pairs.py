"""Reading of sentence pairs with gold similarity scores: STS12-16, STS-B and SICK-R.

Constants tell where the files are in SentEval's data, and how many pairs they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from declutr.evaluation.task import BrokenData, require_rows
from declutr.evaluation.text_files import fields_of, read_lines, senteval_order, words

STS_SUBSETS = {
    "STS12": {"MSRpar": 750, "MSRvid": 750, "SMTeuroparl": 459,
              "surprise.OnWN": 750, "surprise.SMTnews": 399},
    # The subset SMT is not part of SentEval's data because of its licence.
    "STS13": {"FNWN": 189, "headlines": 750, "OnWN": 561},
    "STS14": {"deft-forum": 450, "deft-news": 300, "headlines": 750,
              "images": 750, "OnWN": 750, "tweet-news": 750},
    "STS15": {"answers-forums": 375, "answers-students": 750, "belief": 375,
              "headlines": 750, "images": 750},
    "STS16": {"answer-answer": 254, "headlines": 249, "plagiarism": 230,
              "postediting": 244, "question-question": 209},
}  # fmt: skip
"""The number of pairs with a gold score, by task and subset."""

STS_BENCHMARK = {"train": "sts-train.csv", "dev": "sts-dev.csv", "test": "sts-test.csv"}
"""The files of STS-B by split."""
SICK = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
"""The files of SICK by split."""
STS_B_PAIRS = {"train": 5749, "dev": 1500, "test": 1379}
"""The published number of pairs of STS-B by split."""
SICK_PAIRS = {"train": 4500, "dev": 500, "test": 4927}
"""The published number of pairs of SICK by split."""


@dataclass(frozen=True)
class ScoredPairs:
    """Pairs of sentences `first[i]` and `second[i]` with gold similarity scores."""

    first: list[str]
    second: list[str]
    gold: np.ndarray
    """The gold scores, `(n,)` float64, from 0 to 5."""
    order: list[int] = field(default_factory=list, metadata={"derived": True})
    """The numbers of the pairs in SentEval's order, on which the draws of batches depend.

    Pairs are sorted by the number of words of the first sentence, then of the second, then by
    score; a blank sentence has no words. Pairs that were not read from a file may have no order.
    """

    def __len__(self) -> int:
        return len(self.first)

    def sorted(self) -> ScoredPairs:
        """Return the pairs in SentEval's order."""
        first, second = ([texts[row] for row in self.order] for texts in (self.first, self.second))
        return ScoredPairs(first, second, self.gold[self.order], list(range(len(self))))

    @property
    def sentences(self) -> list[str]:
        """All first sentences, then all second sentences."""
        return [*self.first, *self.second]


Read = Callable[[Path, int | None], ScoredPairs]
"""A function that reads the pairs of a file.

It also gets the published number of pairs, or None if the file is not a published one.
"""


def read_sts_subset(folder: Path, subset: str) -> ScoredPairs:
    """Read a subset of STS12-16: sentences in `STS.input.X.txt`, scores in `STS.gs.X.txt`.

    Pairs with a blank score were never annotated and are left out. Input files of STS16 have more
    columns than the two sentences; these are ignored.

    # Raises

    `MissingData` : a file does not exist.
    `BrokenData` : a file has wrong content.
    """
    sentences, scores = folder / f"STS.input.{subset}.txt", folder / f"STS.gs.{subset}.txt"
    rows, golds = (read_lines(path, latin_1=False) for path in (sentences, scores))
    require_rows(scores, len(golds), len(rows))
    lines = zip(rows, golds, strict=True)
    return pairs_of(
        (fields[0], fields[1], _score(gold, scores, number))
        for number, (row, gold) in enumerate(lines, start=1)
        if gold.strip()
        for fields in [fields_of(row, "\t", 2, sentences, number)]
    )


def read_benchmark(path: Path, published: int | None = None) -> ScoredPairs:
    """Read a split of STS-B: column 5 is the score, columns 6 and 7 are the sentences.

    # Parameters

    path : the file; a row has at least 7 columns.
    published : the number of rows of the published file, if it is one.

    # Raises

    `MissingData` : the file does not exist.
    `BrokenData` : the file has wrong content.
    """
    return _table(path, enumerate(read_lines(path, published, latin_1=False), 1), 7, (5, 6, 4))


def read_sick(path: Path, published: int | None = None) -> ScoredPairs:
    """Read a split of SICK: columns 2 and 3 are the sentences, column 4 is their relatedness.

    # Parameters

    path : the file, which begins with a header.
    published : the number of pairs of the published file, if it is one.

    # Raises

    `MissingData` : the file does not exist.
    `BrokenData` : the file has wrong content.
    """
    rows = list(enumerate(read_lines(path, published and published + 1, latin_1=False), 1))[1:]
    if not rows:
        raise BrokenData(f"{path} has a heading and no pair.")
    return _table(path, rows, 5, (1, 2, 3))


def _table(
    path: Path, rows: Iterable[tuple[int, str]], count: int, columns: tuple[int, int, int]
) -> ScoredPairs:
    """Read pairs from numbered rows of at least `count` fields.

    # Parameters

    columns : the indices of the first sentence, the second sentence and the score.
    """
    first, second, gold = columns
    return pairs_of(
        (fields[first], fields[second], _score(fields[gold], path, number))
        for number, row in rows
        for fields in [fields_of(row, "\t", count, path, number)]
    )


def pairs_of(rows: Iterable[tuple[str, str, float]]) -> ScoredPairs:
    """Return the pairs of rows, of which there is at least one: two sentences and a score."""
    first, second, gold = zip(*rows, strict=True)
    order = senteval_order([first, second], gold)
    return ScoredPairs([*map(words, first)], [*map(words, second)], np.array(gold), order)


def _score(text: str, path: Path, number: int) -> float:
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not 0 <= score <= 5:
        raise BrokenData(f"{path}, line {number}: expected a score from 0 to 5, got {text[:40]!r}.")
    return score


def benchmark_folders(data: Path) -> list[Path]:
    """Return the folder `STSBenchmark`, which may be absent, and other folders in its layout."""
    folder = data / "downstream" / "STS"
    main = folder / "STSBenchmark"
    found = (file.parent for file in folder.glob(f"*/{STS_BENCHMARK['test']}"))
    return [main, *sorted(path for path in found if path != main)]


def benchmark_files(folder: Path) -> dict[str, Path]:
    """Return the files of the splits in a folder in STS-B's layout."""
    return {split: folder / file for split, file in STS_BENCHMARK.items()}


def benchmark_name(folder: Path) -> str:
    """Return the name of the task of a folder in STS-B's layout.

    Only the published data set is called `STS-B`; another one has the name of its folder, to
    prevent confusion.
    """
    return "STS-B" if folder.name == "STSBenchmark" else folder.name


def reader_of(folder: Path) -> Read:
    """Return the reader for the splits in a folder in STS-B's layout.

    Only for the published data set does it check the number of pairs.
    """
    if folder.name == "STSBenchmark":
        return read_benchmark
    return lambda path, _published: read_benchmark(path)
