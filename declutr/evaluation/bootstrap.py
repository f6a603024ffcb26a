"""Bootstrap intervals of scores, and of differences between encoders (Efron, 1979).

A bootstrap sample draws as many test items as there are, with replacement. It is stored as the
number of times that each item was drawn, so that a statistic of many samples is a few operations on
a matrix of counts. Scores on the same items share the samples and what is computed from them.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from declutr.evaluation.scores import MEASURES, OVER, Items, Score, pearson

RESAMPLES = 1000
"""The default number of bootstrap samples."""
_COUNTS_AT_ONCE = 2**20  # counts of items that are in memory together, 8 MiB
_NEARLY_CONSTANT = 1e-8  # share of the variance below which moments have too few digits


class Interval(NamedTuple):
    """The lower and the upper bound of a confidence interval."""

    low: float
    high: float


def intervals(
    scores: Sequence[Score], confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> list[Interval]:
    """Compute the percentile bootstrap interval of each score over its items.

    Samples are drawn within each subset of the items. A subset has the same samples in all scores.

    # Parameters

    scores : the scores; the bounds have their units, and are not numbers if no sample has a value.
    confidence : the share of bootstrap samples that lie within the bounds, 0 to 1.
    resamples : the number of bootstrap samples, at least 1.
    seed : the seed of the bootstrap samples.
    """
    values = resampled(scores, resamples, seed)
    return [_percentiles(of_one, confidence) for of_one in values]


def interval(
    score: Score, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Compute the interval of one score; see `intervals`."""
    return intervals([score], confidence, resamples, seed)[0]


def difference(
    first: Score, second: Score, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Compute the interval of `first - second`, with both drawn on the same bootstrap samples.

    # Parameters

    first, second : the same score of two encoders; `ValueError` is raised if they differ in name,
        in statistic or in the number of items.
    confidence, resamples, seed : see `intervals`.
    """
    ours, theirs = first.count, second.count
    if (first.name, first.statistic, ours) != (second.name, second.statistic, theirs):
        raise ValueError(
            f"Only the same score on the same items can be compared, got {first.name!r} of {ours} "
            f"and {second.name!r} of {theirs} items."
        )
    of_first, of_second = resampled([first, second], resamples, seed)
    return _percentiles(of_first - of_second, confidence)


def resampled(scores: Sequence[Score], resamples: int = RESAMPLES, seed: int = 0) -> np.ndarray:
    """Compute scores on the same bootstrap samples.

    # Parameters

    scores, resamples, seed : see `intervals`.

    # Returns

    Values `(S, B)` of S scores on B samples; not numbers where a sample has no value, for example
    because all its gold scores are equal.
    """
    if resamples < 1:
        raise ValueError(f"Expected at least one bootstrap sample, got {resamples}.")
    known: dict[tuple[bytes, ...], _Part] = {}
    each = [_parts(score.items, known, seed) for score in scores]
    drawn = np.empty((len(scores), resamples))
    longest = max((score.count for score in scores), default=1)
    step = max(1, min(resamples, _COUNTS_AT_ONCE // longest))
    together: dict[tuple[int, ...], _Part] = {}
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        for part in known.values():
            part.draw(size)
        for row, (score, parts) in enumerate(zip(scores, each, strict=True)):
            whole = together.setdefault(tuple(map(id, parts)), _joined(parts))
            drawn[row, start : start + size] = _STATISTICS[score.statistic](whole, parts)
        for part in together.values():
            part.forget()
    return drawn


class _Part:
    """Items that are drawn together, and the statistics of the present samples of them.

    The counts of a part that joins others are theirs.
    """

    def __init__(self, items: Items, drawn: "Callable[[int], np.ndarray] | Sequence[_Part]"):
        self.items = items
        self.size = len(next(iter(items.values())))
        self._drawn = drawn
        self._counts: np.ndarray | None = None
        self._known: dict[str, np.ndarray] = {}
        self._orders: tuple[_Order, _Order] | None = None

    def draw(self, samples: int) -> None:
        """Draw new samples."""
        self.forget()
        assert callable(self._drawn)
        self._counts = self._drawn(samples)

    def forget(self) -> None:
        """Forget all that belongs to the last samples."""
        self._known.clear()
        if not callable(self._drawn):
            self._counts = None

    @property
    def counts(self) -> np.ndarray:
        """How often each item is in each sample, `(b, n)` float64."""
        if self._counts is None:
            assert not callable(self._drawn)
            self._counts = np.concatenate([part.counts for part in self._drawn], axis=1)
        return self._counts

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over the items of each sample of values `(n,)`."""
        return self.counts @ np.asarray(values, dtype=np.float64) / self.size

    def correlation(self, measure: str) -> np.ndarray:
        """Return the correlations of `predicted` with `gold`, `(b,)`."""
        if measure not in self._known:
            self._known[measure] = self._pearson() if measure == "pearson" else self._spearman()
        return self._known[measure]

    def _pearson(self) -> np.ndarray:
        x, y = (_standard(self.items[name]) for name in ("predicted", "gold"))
        if x is None or y is None:
            return np.full(len(self.counts), math.nan)
        moments = self.counts @ np.stack([x, y, x * x, y * y, x * y], axis=1)  # (b, 5)
        sum_x, sum_y, of_x, of_y, of_both = moments.T
        of_x, of_y = of_x - sum_x**2 / self.size, of_y - sum_y**2 / self.size
        with np.errstate(invalid="ignore", divide="ignore"):
            found = (of_both - sum_x * sum_y / self.size) / np.sqrt(of_x * of_y)
        for row in np.flatnonzero(np.minimum(of_x, of_y) < _NEARLY_CONSTANT):
            items = np.repeat(np.arange(self.size), self.counts[row].astype(np.int64))
            found[row] = pearson(x[items], y[items])
        return np.clip(found, -1, 1)

    def _spearman(self) -> np.ndarray:
        if self._orders is None:
            self._orders = _Order(self.items["predicted"]), _Order(self.items["gold"])
        first, second = self._orders
        middle = self.size * ((self.size + 1) / 2) ** 2  # the mean of ranks is (n + 1) / 2
        times, ranks = first.ranks(self.counts[:, first.sorted])
        of_first = np.einsum("bg,bg,bg->b", times, ranks, ranks) - middle
        counts = self.counts[:, second.sorted]
        times, others = second.ranks(counts)
        of_second = np.einsum("bg,bg,bg->b", times, others, others) - middle
        counts *= ranks[:, first.groups[second.sorted]]
        of_both = np.einsum("bg,bg->b", second.sums(counts), others) - middle
        product = of_first * of_second  # 0 exactly for equal values: all sums are of quarters
        return np.divide(
            of_both, np.sqrt(product), out=np.full(len(product), math.nan), where=product > 0
        ).clip(-1, 1)


class _Order:
    """The order of values `(n,)`, from which their ranks in any sample follow without sorting."""

    def __init__(self, values: np.ndarray) -> None:
        _, self.groups, sizes = np.unique(values, return_inverse=True, return_counts=True)
        self.sorted = np.argsort(self.groups, kind="stable")
        self._starts = np.cumsum(sizes) - sizes  # of the g groups of equal values

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return the sums `(b, g)` over groups of values `(b, n)` in sorted order."""
        if len(self._starts) == values.shape[1]:
            return values
        return np.add.reduceat(values, self._starts, axis=1)

    def ranks(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return how often samples have each group, and its rank from 1 up, both `(b, g)`.

        Equal values share the mean of their ranks.
        """
        drawn = self.sums(counts)
        return drawn, drawn.cumsum(axis=1) - (drawn - 1) / 2


def _parts(items: Items, known: dict[tuple[bytes, ...], _Part], seed: int) -> list[_Part]:
    """Return the parts that the subsets of items make; equal parts are the same object."""
    subsets = items.get("subset", np.zeros(len(next(iter(items.values()))), dtype=np.int64))
    parts = []
    for subset in np.unique(subsets):
        rows = subsets == subset
        taken = {name: array[rows] for name, array in items.items() if name != "subset"}
        texts = (part for name in sorted(taken) for part in (name.encode(), taken[name].tobytes()))
        key = (str(subset).encode(), *texts)
        if key not in known:
            known[key] = _Part(taken, _counter(int(rows.sum()), [seed, _natural(int(subset))]))
        parts.append(known[key])
    return parts


def _natural(number: int) -> int:
    """Map the integers to the natural numbers, which seeds must be."""
    return 2 * number if number >= 0 else -2 * number - 1


def _counter(size: int, seed: Sequence[int]) -> Callable[[int], np.ndarray]:
    """Return a function that draws counts `(b, size)` of b samples."""
    rng = np.random.default_rng(seed)

    def drawn(samples: int) -> np.ndarray:
        rows = rng.integers(size, size=(samples, size))
        rows += size * np.arange(samples)[:, None]
        counts = np.bincount(rows.ravel(), minlength=samples * size)
        return counts.reshape(samples, size).astype(np.float64)

    return drawn


def _joined(parts: Sequence[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    names = parts[0].items
    items = {name: np.concatenate([part.items[name] for part in parts]) for name in names}
    return _Part(items, parts)


def _standard(values: np.ndarray) -> np.ndarray | None:
    """Return values in float64 with mean 0 and squares that add to 1; None if all are equal."""
    if np.all(values == values[0]):
        return None
    values = np.asarray(values, dtype=np.float64)
    values = values - np.mean(values)
    values = values / np.abs(values).max()
    return values / np.linalg.norm(values)


def _percentiles(values: np.ndarray, confidence: float) -> Interval:
    # A bootstrap sample may have no value, for example if all its gold scores are equal.
    defined = values[~np.isnan(values)]
    tail = 50 * (1 - confidence)
    low, high = np.percentile(defined if len(defined) else [math.nan], [tail, 100 - tail])
    return Interval(float(low), float(high))


_Statistic = Callable[[_Part, Sequence[_Part]], np.ndarray]


def _log_mean(whole: _Part, parts: Sequence[_Part]) -> np.ndarray:
    means = whole.mean(whole.items["value"])
    return np.log(means, out=np.full(len(means), math.nan), where=means > 0)


def _accuracy(whole: _Part, parts: Sequence[_Part]) -> np.ndarray:
    return 100 * whole.mean(whole.items["predicted"] == whole.items["gold"])


def _f1(whole: _Part, parts: Sequence[_Part]) -> np.ndarray:
    predicted, gold = whole.items["predicted"] == 1, whole.items["gold"] == 1
    found, total = 2 * whole.mean(predicted & gold), whole.mean(predicted) + whole.mean(gold)
    return 100 * np.divide(found, total, out=np.zeros(len(total)), where=total > 0)


def _correlation(measure: str, over: str) -> _Statistic:
    def correlation(whole: _Part, parts: Sequence[_Part]) -> np.ndarray:
        if over == "all":
            return 100 * whole.correlation(measure)
        weights = [part.size for part in parts] if over == "wmean" else None
        return 100 * np.average([p.correlation(measure) for p in parts], axis=0, weights=weights)

    return correlation


_STATISTICS: dict[str, _Statistic] = {
    "mean": lambda whole, parts: 100 * whole.mean(whole.items["value"]),
    "plain_mean": lambda whole, parts: whole.mean(whole.items["value"]),
    "log_mean": _log_mean,
    "accuracy": _accuracy,
    "f1": _f1,
    "accuracy_and_f1": lambda *items: (_accuracy(*items) + _f1(*items)) / 2,
    **{f"{measure}_{over}": _correlation(measure, over) for measure in MEASURES for over in OVER},
}
"""The statistics of `declutr.evaluation.scores.STATISTICS`, of all samples at once."""
