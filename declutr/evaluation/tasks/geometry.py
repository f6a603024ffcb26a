"""The geometry of embeddings on the unit sphere: alignment, uniformity, anisotropy, collapse.

Every score is a mean of contributions of sentences (or the logarithm of one), so that a bootstrap
gives it an interval. Where a score is not such a mean, the contribution of a sentence is the score
plus the influence of the sentence on it: the mean of these contributions is exactly the score, and
their spread is that of the score to first order (Efron, 1982, chapter 6).
"""

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
"""The gold score, of 5, above which pairs of STS-B have the same meaning (Gao et al., 2021)."""

ONE_DIRECTION = 0.999
"""The mean cosine above which embeddings have collapsed to a point."""
FEW_DIRECTIONS = 0.01
"""The share of dimensions below which the effective rank means a collapse to a subspace."""


def tasks(data: Path, protocol: Protocol) -> list[Task]:
    """Return the geometry task in a list, over STS-B or else another folder of its layout."""
    return [Geometry(benchmark_folders(data))]


def unit(embeddings: np.ndarray) -> np.ndarray:
    """Scale rows `(n, d)` to length 1; rows of zeros remain zero."""
    lengths = np.linalg.norm(embeddings.astype(np.float64), axis=1, keepdims=True)
    return embeddings / np.where(lengths > 0, lengths, 1).astype(embeddings.dtype)


def alignment_contributions(x: np.ndarray, y: np.ndarray, alpha: float = 2) -> np.ndarray:
    """Return |x_i - y_i|^alpha, `(n,)`, of pairs with the same meaning; the mean is the alignment.

    Wang and Isola (2020), section 4.1. For alpha 2 it is between 0, which is perfect, and 4.

    # Parameters

    x, y : embeddings of the first and the second sentences, `(n, d)`; they are scaled to length 1.
    alpha : the exponent.
    """
    return np.linalg.norm(unit(x) - unit(y), axis=1).astype(np.float64) ** alpha


def uniformity_contributions(x: np.ndarray, t: float = 2, block: int = 1024) -> np.ndarray:
    """Return contributions `(n,)` whose mean is that of exp(-t |x_i - x_j|^2) over pairs i < j.

    The logarithm of the mean is the uniformity (Wang and Isola, 2020, section 4.1): 0 if all rows
    are equal, at least -4t, and about -2t if rows are spread over many dimensions. Every pair
    belongs to two sentences, which `_pair_influences` takes into account.

    # Parameters

    x : embeddings of distinct sentences, `(n, d)`, n >= 2; they are scaled to length 1.
    t : the scale of the kernel.
    block : the number of rows to compare at a time; memory grows with its square.

    # Raises

    `ValueError` : there are fewer than two rows.
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
    """Return contributions `(n,)` whose mean is the mean cosine over pairs of rows `(n, d)`."""
    x = unit(x.astype(np.float64))
    total = x.sum(axis=0)
    return _pair_influences((x @ total - np.einsum("nd,nd->n", x, x)) / (len(x) - 1))


def _pair_influences(means: np.ndarray) -> np.ndarray:
    """Turn means over the pairs of each row into contributions to the mean over all pairs.

    A row takes part in a pair on either side, so its deviation from the mean counts twice.
    """
    return 2 * means - means.mean()


class Spectrum(NamedTuple):
    """The distribution of variance over principal components."""

    first: np.ndarray
    """Contributions `(n,)` whose mean is the first component's share of the variance, 0 to 1."""
    rank: np.ndarray
    """Contributions `(n,)` whose mean is the effective rank, from 1 to the dimension: the
    exponential of the entropy of the shares (Roy and Vetterli, 2007)."""


def spectrum(x: np.ndarray) -> Spectrum:
    """Compute the spectrum of rows `(n, d)` that are scaled to length 1 and centred.

    If all rows are equal there is no variance: the share of the first component and the rank are 1.
    """
    x = unit(x.astype(np.float64))
    x = x - x.mean(axis=0)
    if np.einsum("nd,nd->", x, x) < 1e-12 * len(x):  # equal up to the rounding of float32
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
    """Project centred rows `(n, d)` on their principal components: `(n, min(n, d))`."""
    n, d = x.shape
    if d <= n:
        return x @ np.linalg.eigh(x.T @ x)[1]
    values, sides = np.linalg.eigh(x @ x.T)  # n < d, so this matrix is the smaller one
    return sides * np.sqrt(values.clip(min=0))


def collapse_alarm(x: np.ndarray, mean_cosine: float, rank: float) -> str | None:
    """Return a warning for the user if embeddings `(n, d)` have collapsed, else None."""
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
    """The alignment of pairs with the same meaning, and the spread of all distinct sentences.

    # Parameters

    folders : folders in STS-B's layout; the first one that exists is used.
    """

    before_scoring: ClassVar[dict[str, Any]] = {"_alarm": None}
    """Initial values of attributes that scoring changes; see `declutr.evaluation.suite.evaluate`
    and `declutr.evaluation.result_keys.data_digest`."""

    def __init__(self, folders: list[Path]) -> None:
        super().__init__("geometry", group="geometry", main="uniformity")
        self._folders = folders
        self._alarm: str | None = None  # for the embeddings that were scored last

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
        """Return the first and the second sentences of pairs with the same meaning."""
        pairs = [
            (first, second)
            for part in self._pairs
            for first, second, gold in zip(part.first, part.second, part.gold, strict=True)
            if gold > CUT
        ]
        if not pairs:
            raise BrokenData(f"{self._folder} has no pair that was scored above {CUT:g} of 5.")
        return [first for first, _ in pairs], [second for _, second in pairs]
