"""How embeddings lie on the unit sphere: alignment, uniformity, anisotropy, and a collapse alarm.

Every score is a mean of contributions of sentences (or the logarithm of one), so that a bootstrap
gives it an interval. Where a score is no mean of that kind, contributions are its value plus the
influence of each sentence on it: their mean is the score exactly, and their spread is that of the
score to first order (Efron, 1982, chapter 6).
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Protocol, Task, Vectors
from declutr.evaluation.tasks.scored_pairs import (
    STS_B_PAIRS,
    ScoredPairs,
    benchmark_files,
    benchmark_folders,
    benchmark_name,
    reader_of,
)

CUT = 4.0
"""Pairs of STS-B that people scored above this, of 5, mean the same (Gao et al., 2021)."""

ONE_DIRECTION = 0.999
"""A mean cosine above it is a collapse to a point."""
FEW_DIRECTIONS = 0.01
"""An effective rank below this share of the dimensions is a collapse to a subspace."""


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """One task, over STS-B, or else over another folder of its layout."""
    return [Geometry(benchmark_folders(data))]


def unit(embeddings: np.ndarray) -> np.ndarray:
    """Rows `(n, d)` of length 1; zero rows stay zero."""
    lengths = np.linalg.norm(embeddings.astype(np.float64), axis=1, keepdims=True)
    return embeddings / np.where(lengths > 0, lengths, 1).astype(embeddings.dtype)


def alignment_contributions(x: np.ndarray, y: np.ndarray, alpha: float = 2) -> np.ndarray:
    """|x_i - y_i|^alpha of pairs `(n, d)` that mean the same, `(n,)`; their mean is alignment.

    Wang and Isola (2020), section 4.1. 0 is perfect, 4 the worst for alpha 2.
    """
    return np.linalg.norm(unit(x) - unit(y), axis=1).astype(np.float64) ** alpha


def uniformity_contributions(x: np.ndarray, t: float = 2, block: int = 1024) -> np.ndarray:
    """Contributions `(n,)` whose mean is that of exp(-t |x_i - x_j|^2) over pairs i < j.

    The logarithm of the mean is uniformity (Wang and Isola, 2020, section 4.1): 0 if all rows are
    the same, -4t at the least, about -t if they are spread over many dimensions. A sentence's pairs
    are spread over both its contribution and those of the others, hence `_influences`.

    # Parameters

    x : embeddings of different sentences, `(n, d)`, n >= 2.
    block : rows at a time; memory is that of `block` squared numbers.
    """
    n = len(x)
    if n < 2:
        raise ValueError(f"Uniformity needs at least two embeddings, got {n}.")
    x = unit(x)
    squares = np.einsum("nd,nd->n", x, x)  # 1, or 0 for a zero vector
    sums = np.zeros(n)
    for row, column in combinations_with_replacement(range(0, n, block), 2):
        rows, columns = slice(row, row + block), slice(column, column + block)
        distances = squares[rows, None] + squares[columns] - 2 * (x[rows] @ x[columns].T)
        kernel = np.exp(-t * distances.clip(min=0))
        if rows == columns:
            np.fill_diagonal(kernel, 0)
        else:
            sums[columns] += kernel.sum(axis=0, dtype=np.float64)
        sums[rows] += kernel.sum(axis=1, dtype=np.float64)
    return _pair_influences(sums / (n - 1))


def cosine_contributions(x: np.ndarray) -> np.ndarray:
    """Contributions `(n,)` whose mean is the mean cosine over all pairs i < j of rows `(n, d)`."""
    x = unit(x.astype(np.float64))
    total = x.sum(axis=0)
    return _pair_influences((x @ total - np.einsum("nd,nd->n", x, x)) / (len(x) - 1))


def _pair_influences(means: np.ndarray) -> np.ndarray:
    """Of a mean over pairs, from each row's mean over its own: rows count twice, once a side."""
    return 2 * means - means.mean()


class Spectrum(NamedTuple):
    """How the variance of directions is shared among principal components."""

    first: np.ndarray
    """Contributions `(n,)` whose mean is the first component's share of the variance, 0 to 1."""
    rank: np.ndarray
    """Contributions `(n,)` whose mean is the effective rank: exp of the entropy of the shares (Roy
    and Vetterli, 2007). Between 1 and the dimension."""


def spectrum(x: np.ndarray) -> Spectrum:
    """Of rows `(n, d)`, made unit vectors and centred.

    Where all are the same there is no variance to share: 1 component has all, and its rank is 1.
    """
    x = unit(x.astype(np.float64))
    x = x - x.mean(axis=0)
    if np.einsum("nd,nd->", x, x) < 1e-12 * len(x):  # rounding of float32
        return Spectrum(np.ones(len(x)), np.ones(len(x)))
    squares = _projections(x) ** 2  # (n, k): their means are the variances of components
    total = squares.mean(axis=0).sum()
    shares = squares.mean(axis=0) / total
    # d p_k / d row i = (z_ik^2 - p_k |z_i|^2) / total
    slopes = (squares - shares * squares.sum(axis=1, keepdims=True)) / total  # (n, k)
    used = shares > 0
    logs = np.log(shares, where=used, out=np.zeros_like(shares))
    rank = np.exp(-(shares * logs).sum())
    first = shares.argmax()
    return Spectrum(shares[first] + slopes[:, first], rank * (1 - slopes @ logs))


def _projections(x: np.ndarray) -> np.ndarray:
    """Of centred rows `(n, d)` on their principal components: `(n, min(n, d))`."""
    n, d = x.shape
    if d <= n:
        return x @ np.linalg.eigh(x.T @ x)[1]
    values, sides = np.linalg.eigh(x @ x.T)  # more dimensions than rows: the smaller of the two
    return sides * np.sqrt(values.clip(min=0))


def collapse_alarm(x: np.ndarray, mean_cosine: float, rank: float) -> str | None:
    """A sentence for the user if embeddings `(n, d)` are of no use, else None."""
    n, d = x.shape
    zero = int((~x.any(axis=1)).sum())
    most = min(d, n - 1)
    if zero > n / 2:
        return f"COLLAPSE: the embeddings of {zero:,} of {n:,} sentences are zero."
    if mean_cosine > ONE_DIRECTION:
        return (
            f"COLLAPSE: all {n:,} embeddings point the same way (mean cosine {mean_cosine:.6f}); "
            "they tell sentences apart hardly or not at all."
        )
    if rank < max(FEW_DIRECTIONS * most, min(2, most / 2)):
        return (
            f"COLLAPSE: the embeddings of {n:,} sentences vary in {rank:.1f} of {d} dimensions "
            "(effective rank)."
        )
    return None


class Geometry(Task):
    """Alignment of pairs that mean the same, and how all different sentences are spread.

    # Parameters

    folders : in STS-B's layout; the first that is there is used.
    """

    before_scoring: ClassVar[dict[str, Any]] = {"_alarm": None}
    """See `declutr.evaluation.suite.evaluate` and `declutr.evaluation.results.data_digest`."""

    def __init__(self, folders: list[Path]) -> None:
        super().__init__("geometry", group="geometry", main="uniformity")
        self._folders = folders
        self._alarm: str | None = None  # of the embeddings that were scored last

    @cached_property
    def _folder(self) -> Path:
        there = (folder for folder in self._folders if folder.is_dir())
        return next(there, self._folders[0])

    @cached_property
    def _pairs(self) -> list[ScoredPairs]:
        read = reader_of(self._folder)
        files = benchmark_files(self._folder)
        return [read(path, STS_B_PAIRS[split]) for split, path in files.items()]

    def sentences(self) -> list[str]:
        return list(dict.fromkeys(text for pairs in self._pairs for text in pairs.sentences))

    def scores(self, vectors: Vectors) -> list[Score]:
        self._alarm = None
        first, second = self._same()
        x = vectors(self.sentences())
        cosine, variance = cosine_contributions(x), spectrum(x)
        self._alarm = collapse_alarm(x, cosine.mean(), variance.rank.mean())
        alignment = alignment_contributions(vectors(first), vectors(second))
        return [
            Score("alignment", "plain_mean", {"value": alignment}),
            Score("uniformity", "log_mean", {"value": uniformity_contributions(x)}),
            Score("mean cosine", "plain_mean", {"value": cosine}),
            Score("first component share", "mean", {"value": variance.first}),
            Score("effective rank", "plain_mean", {"value": variance.rank}),
        ]

    def notes(self) -> list[str]:
        first, _ = self._same()
        about = (
            f"{benchmark_name(self._folder)}: alignment of {len(first):,} pairs scored above "
            f"{CUT:g} of 5; the rest over {len(self.sentences()):,} different sentences."
        )
        return [about] if self._alarm is None else [self._alarm, about]

    def _same(self) -> tuple[list[str], list[str]]:
        """Pairs that mean the same."""
        pairs = [
            (first, second)
            for part in self._pairs
            for first, second, gold in zip(part.first, part.second, part.gold, strict=True)
            if gold > CUT
        ]
        if not pairs:
            raise BrokenData(f"{self._folder} has no pair that was scored above {CUT:g} of 5.")
        return [first for first, _ in pairs], [second for _, second in pairs]
