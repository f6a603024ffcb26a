"""Semantic similarity: STS12-16, STS-B and SICK-R, in the conventions of every paper.

A task's correlation of cosines with gold scores has three conventions. Let subset k have n_k pairs
and correlation r_k: `mean` is the average of r_k, `wmean` the average weighted by n_k, and `all`
the correlation over all pairs at once. SentEval and DeCLUTR report `mean` and `wmean`, SimCSE and
SCD `all Spearman`. MTEB takes Spearman over the whole split, without removing duplicates:

* STS12-16: the same number as `all Spearman`, repeated under MTEB's name;
* STS-B: the same number as `cosine Spearman` of the test split;
* SICK-R: over all 9,927 pairs, because MTEB's split `test` contains train, trial and test.

MTEB's texts are not tokenised as SentEval's are, so the last digits of a number may differ from
those that MTEB reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from declutr.evaluation.classifiers.features import difference_and_product
from declutr.evaluation.scores import MEASURES, OVER, Items, Score
from declutr.evaluation.task import BrokenData, MissingData, Protocol, Task, Vectors
from declutr.evaluation.tasks.scored_pairs import (
    SICK,
    SICK_PAIRS,
    STS_B_PAIRS,
    STS_SUBSETS,
    Read,
    ScoredPairs,
    benchmark_files,
    benchmark_folders,
    benchmark_name,
    read_sick,
    read_sts_subset,
    reader_of,
)
from declutr.evaluation.text_files import other_sizes

if TYPE_CHECKING:  # correlations of cosines need not wait for it
    import torch

DIGITS = 7
"""The decimals that a cosine is rounded to: those of float32, the dtype of the embeddings."""


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """Return STS12-16, STS-B, tasks of other folders in its layout, and SICK-R."""
    sts, sick = data / "downstream" / "STS", data / "downstream" / "SICK"
    found: list[Task] = [
        SubsetSimilarity(name, sts / f"{name}-en-test", subsets)
        for name, subsets in STS_SUBSETS.items()
    ]
    for path in benchmark_folders(data):
        about = benchmark_name(path), benchmark_files(path), reader_of(path)
        found.append(Relatedness(*about, protocol, STS_B_PAIRS))
    files = {split: sick / file for split, file in SICK.items()}
    splits = ("train", "dev", "test")
    return [*found, Relatedness("SICK-R", files, read_sick, protocol, SICK_PAIRS, splits)]


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines of rows, `(n,)` float64; 0 for a zero vector, as in SentEval.

    Cosines are rounded to `DIGITS` decimals. Pairs whose cosines differ only by rounding are
    therefore ties, and equal vectors have a cosine of exactly 1; otherwise, rank correlations would
    depend on rounding.

    # Parameters

    first, second : embeddings of the two sentences of pairs, `(n, d)`.
    """
    first, second = first.astype(np.float64), second.astype(np.float64)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    raw = np.einsum("nd,nd->n", first, second) / np.where(lengths > 0, lengths, 1)
    return raw.round(DIGITS) + 0.0  # turns -0.0 into 0.0


def highest_cosines(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the highest cosine of each of the rows `(n, d)` with any of the others, `(n,)`."""
    return np.max([cosines(rows, np.broadcast_to(one, rows.shape)) for one in others], axis=0)


class SubsetSimilarity(Task):
    """One of STS12-16: the correlation of cosines with gold scores, over several subsets.

    # Parameters

    name : see `Task`.
    folder : a folder with `STS.input.X.txt` and `STS.gs.X.txt` for every subset X.
    subsets : the published number of pairs by name of the subset.
    """

    def __init__(self, name: str, folder: Path, subsets: Mapping[str, int]) -> None:
        super().__init__(name, group="sts", main="all Spearman")
        self._folder, self._subsets = folder, dict(subsets)

    @cached_property
    def _pairs(self) -> dict[str, ScoredPairs]:
        if not self._folder.is_dir():
            raise MissingData(f"{self._folder} is not there.")
        try:
            return {subset: read_sts_subset(self._folder, subset) for subset in self._subsets}
        except MissingData as error:
            raise BrokenData(
                f"{error} {self.name} is all of {', '.join(self._subsets)}: without one of them "
                "its scores compare with nothing."
            ) from error

    def sentences(self) -> list[str]:
        return [text for pairs in self._pairs.values() for text in pairs.sentences]

    def scores(self, vectors: Vectors) -> list[Score]:
        each = {
            subset: _cosine_items(vectors, pairs, place)
            for place, (subset, pairs) in enumerate(self._pairs.items())
        }
        items = _joined(list(each.values()))
        return [
            *(s for over in OVER for s in _correlations(f"{over} {{}}", items, over)),
            Score("MTEB Spearman", "spearman_all", items),
            *(s for subset, part in each.items() for s in _correlations(f"{subset} {{}}", part)),
        ]

    def notes(self) -> list[str]:
        return other_sizes("pairs in {}", self._pairs, self._subsets)


class Relatedness(Task):
    """STS-B or SICK-R: cosines, and a regressor that is trained on embeddings.

    # Parameters

    name : see `Task`.
    files : the files of the splits `train`, `dev` and `test`.
    read : reads one of them.
    protocol : says whether and how to train the regressor.
    published : the published number of pairs by split; a note tells of differences.
    mteb : the splits that MTEB evaluates on together.
    """

    def __init__(
        self,
        name: str,
        files: Mapping[str, Path],
        read: Read,
        protocol: Protocol,
        published: Mapping[str, int],
        mteb: Sequence[str] = ("test",),
    ) -> None:
        super().__init__(name, group="sts", main="cosine Spearman")
        self._files, self._read, self._protocol = dict(files), read, protocol
        self._published, self._mteb = dict(published), tuple(mteb)

    @cached_property
    def _splits(self) -> dict[str, ScoredPairs]:
        rows = self._published
        return {split: self._read(path, rows[split]) for split, path in self._files.items()}

    def sentences(self) -> list[str]:
        needed = set(self._splits) if self._protocol.regressor else {"dev", "test", *self._mteb}
        return [
            text
            for split, pairs in self._splits.items()
            if split in needed
            for text in pairs.sentences
        ]

    def scores(self, vectors: Vectors) -> list[Score]:
        items: dict[str, Items] = {
            f"cosine {{}}{ending}": _cosine_items(vectors, self._splits[split])
            for split, ending in (("test", ""), ("dev", " dev"))
        }
        if self._protocol.regressor:
            items |= self._trained_items(vectors)
        mteb = _joined([_cosine_items(vectors, self._splits[split]) for split in self._mteb])
        return [
            *(score for name, part in items.items() for score in _correlations(name, part)),
            Score("MTEB Spearman", "spearman_all", mteb),
        ]

    def _trained_items(self, vectors: Vectors) -> dict[str, Items]:
        from declutr.evaluation.classifiers.relatedness_regressor import Rated, trained_relatedness

        rated = {
            split: Rated(_features(vectors, pairs), pairs.gold)
            for split, pairs in (self._splits | {"train": self._splits["train"].sorted()}).items()
        }
        predicted = trained_relatedness(
            rated["train"],
            rated["dev"],
            rated["test"].features,
            seed=self._protocol.seed,
            device=self._protocol.trained_on,
        )
        return {
            "trained {}": {"predicted": predicted.test, "gold": rated["test"].gold},
            "trained {} dev": {"predicted": predicted.dev, "gold": rated["dev"].gold},
        }

    def notes(self) -> list[str]:
        return other_sizes("pairs in {}", self._splits, self._published)


def _cosine_items(vectors: Vectors, pairs: ScoredPairs, subset: int = 0) -> Items:
    predicted = cosines(vectors(pairs.first), vectors(pairs.second))
    return {"predicted": predicted, "gold": pairs.gold, "subset": np.full(len(pairs), subset)}


def _joined(parts: Sequence[Items]) -> Items:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _correlations(name: str, items: Items, over: str = "all") -> list[Score]:
    """Return both correlations as scores, over subsets as `declutr.evaluation.scores` defines.

    # Parameters

    name : the name of the scores, with `{}` for the name of the correlation.
    items : cosines and gold scores.
    over : `all`, `mean` or `wmean`.
    """
    return [Score(name.format(which.title()), f"{which}_{over}", items) for which in MEASURES]


def _features(vectors: Vectors, pairs: ScoredPairs) -> torch.Tensor:
    import torch

    first, second = (torch.from_numpy(vectors(texts)) for texts in (pairs.first, pairs.second))
    return difference_and_product(first, second)
