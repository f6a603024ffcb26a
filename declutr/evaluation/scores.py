"""Scores that know how sure they are.

A score keeps what every test item contributed. So a bootstrap over items gives an interval for it
and, on the same items, for the difference between two encoders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Items = Mapping[str, np.ndarray]
"""What test items contributed: arrays by name, of one length n. A whole number `subset` for each
item, if there is one, tells the parts of a test set: items are then drawn within each part."""

RESAMPLES = 1000
"""How many times a bootstrap draws as many items as there are."""


@dataclass(frozen=True)
class Score:
    """A named number, in percent unless its name says otherwise, and where it comes from.

    # Raises

    `ValueError` : the statistic is unknown, there are no items, or arrays of different lengths.
    """

    name: str
    statistic: str
    """A key of `STATISTICS`."""
    items: Items

    def __post_init__(self) -> None:
        if self.statistic not in STATISTICS:
            raise ValueError(f"Unknown statistic {self.statistic!r}; known: {sorted(STATISTICS)}.")
        lengths = {len(array) for array in self.items.values()}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError(
                f"{self.name}: expected arrays of one length above 0, got "
                f"{ {name: len(array) for name, array in self.items.items()} }."
            )

    @property
    def value(self) -> float:
        return STATISTICS[self.statistic](self.items)


class Interval(NamedTuple):
    """Between which values a score lies, with some confidence."""

    low: float
    high: float


def interval(
    score: Score, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The percentile bootstrap interval of a score (Efron, 1979), over its test items."""
    statistic, items = STATISTICS[score.statistic], _ready(score)
    drawn = [statistic(_taken(items, rows)) for rows in _draws(items, resamples, seed)]
    return _percentiles(drawn, confidence)


def difference(
    first: Score, second: Score, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The interval of `first - second`, both on the same drawn items each time.

    # Raises

    `ValueError` : the two are not the same score of the same number of items.
    """
    ours, theirs = _count(first.items), _count(second.items)
    if (first.name, first.statistic, ours) != (second.name, second.statistic, theirs):
        raise ValueError(
            f"Only the same score on the same items can be compared, got {first.name!r} of {ours} "
            f"and {second.name!r} of {theirs} items."
        )
    statistic, our_items, their_items = STATISTICS[first.statistic], _ready(first), _ready(second)
    drawn = [
        statistic(_taken(our_items, rows)) - statistic(_taken(their_items, rows))
        for rows in _draws(our_items, resamples, seed)
    ]
    return _percentiles(drawn, confidence)


def _count(items: Items) -> int:
    return len(next(iter(items.values())))


def _ready(score: Score) -> Items:
    """Its items, with the same value and quicker to resample.

    Ranks know only order. So values become whole numbers in the same order once, and ranks of a
    thousand samples of them need no sorting.
    """
    if not score.statistic.startswith("spearman"):
        return score.items
    return {
        name: np.unique(array, return_inverse=True)[1] if name in ("predicted", "gold") else array
        for name, array in score.items.items()
    }


def _taken(items: Items, rows: np.ndarray) -> Items:
    return {name: array[rows] for name, array in items.items()}


def _draws(items: Items, resamples: int, seed: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    subsets = items.get("subset", np.zeros(_count(items), dtype=np.int64))
    parts = [np.flatnonzero(subsets == subset) for subset in np.unique(subsets)]
    for _ in range(resamples):
        yield np.concatenate([part[rng.integers(len(part), size=len(part))] for part in parts])


def _percentiles(values: list[float], confidence: float) -> Interval:
    # A resample may have no defined value (all its gold scores equal, say).
    defined = [value for value in values if not np.isnan(value)]
    if not defined:
        return Interval(float("nan"), float("nan"))
    tail = 50 * (1 - confidence)
    low, high = np.percentile(defined, [tail, 100 - tail])
    return Interval(float(low), float(high))


# ---------------------------------------------------------------------------------- statistics


def _mean(items: Items) -> float:
    return 100 * float(np.mean(items["value"]))


def _plain_mean(items: Items) -> float:
    return float(np.mean(items["value"]))


def _log_mean(items: Items) -> float:
    """Not a number where the mean is not above 0, as that of a resample may be."""
    mean = float(np.mean(items["value"]))
    return math.log(mean) if mean > 0 else float("nan")


def _f1(items: Items) -> float:
    """Of the positive class 1."""
    predicted, gold = items["predicted"] == 1, items["gold"] == 1
    found = 2 * np.sum(predicted & gold)
    total = np.sum(predicted) + np.sum(gold)
    return 100 * float(found / total) if total else 0.0


def _accuracy(items: Items) -> float:
    return 100 * float(np.mean(items["predicted"] == items["gold"]))


def _accuracy_and_f1(items: Items) -> float:
    return (_accuracy(items) + _f1(items)) / 2


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation of two arrays `(n,)`; not a number if one of them is constant."""
    if np.all(x == x[0]) or np.all(y == y[0]):  # rounding would leave a little after `- mean`
        return float("nan")
    x, y = _standard(x), _standard(y)
    return float(np.clip(np.dot(x, y), -1, 1))


def _standard(x: np.ndarray) -> np.ndarray:
    """`x` without its mean, of length 1."""
    x = np.asarray(x, dtype=np.float64)
    x = x - np.mean(x)
    x = x / np.abs(x).max()  # else the squares of very small numbers are 0
    return x / np.linalg.norm(x)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's correlation of two arrays `(n,)`: Pearson's of ranks, ties sharing their mean."""
    return pearson(_ranks(x), _ranks(y))


def _ranks(values: np.ndarray) -> np.ndarray:
    """From 1 up; equal values share the mean of theirs."""
    if values.dtype.kind not in "iu" or np.ptp(values) > 64 * len(values):
        values = np.unique(values, return_inverse=True)[1]
    values = values - values.min()
    counts = np.bincount(values)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[values]


def _correlation(
    measure: Callable[[np.ndarray, np.ndarray], float], over: str
) -> Callable[[Items], float]:
    """Of `predicted` with `gold`: over `all` items, or a `mean` or `wmean` of those of subsets."""

    def correlation(items: Items) -> float:
        predicted, gold = items["predicted"], items["gold"]
        if over == "all":
            return 100 * measure(predicted, gold)
        subsets = items["subset"]
        kinds, counts = np.unique(subsets, return_counts=True)
        each = [measure(predicted[subsets == k], gold[subsets == k]) for k in kinds]
        return 100 * float(np.average(each, weights=counts if over == "wmean" else None))

    return correlation


STATISTICS: dict[str, Callable[[Items], float]] = {
    "mean": _mean,
    "plain_mean": _plain_mean,
    "log_mean": _log_mean,
    "accuracy": _accuracy,
    "f1": _f1,
    "accuracy_and_f1": _accuracy_and_f1,
    **{
        f"{measure.__name__}_{over}": _correlation(measure, over)
        for measure in (pearson, spearman)
        for over in ("all", "mean", "wmean")
    },
}
"""Functions of items, by name. `mean`: of `value`, in percent; `plain_mean`: as it is, and its
natural logarithm; `accuracy`, `f1` and their mean: of `predicted` and `gold` classes; correlations:
of `predicted` and `gold`, over all items, or the mean of subsets', plain or by their sizes."""
