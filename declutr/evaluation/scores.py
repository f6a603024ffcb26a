"""Scores, and the statistics that they are.

A score stores what every test item contributed to it. A bootstrap over the items therefore gives a
confidence interval for the score and, over the same items, for the difference between two encoders:
see `declutr.evaluation.bootstrap`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Items = Mapping[str, np.ndarray]
"""Contributions of n test items: arrays `(n,)` by name.

A bootstrap draws within each part of the items that an optional array `subset` of integers makes.
"""

OVER = ("all", "mean", "wmean")
"""The conventions for correlations over subsets."""


@dataclass(frozen=True)
class Score:
    """A named number, usually in percent, with the items it is computed from.

    # Parameters

    name : the name of the score, unique within its task.
    statistic : a key of `STATISTICS`; any other raises `ValueError`.
    items : what each test item contributed; none, or arrays of unequal length, raise `ValueError`.
    """

    name: str
    statistic: str
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
    def count(self) -> int:
        """The number of test items."""
        return len(next(iter(self.items.values())))

    @property
    def value(self) -> float:
        """The value of the statistic over all items."""
        return STATISTICS[self.statistic](self.items)


def _plain_mean(items: Items) -> float:
    return float(np.mean(items["value"]))


def _log_mean(items: Items) -> float:
    """Return the logarithm of the mean; not a number if the mean of a sample is not above 0."""
    mean = _plain_mean(items)
    return math.log(mean) if mean > 0 else float("nan")


def _f1(items: Items) -> float:
    """Return the F1 of class 1 in percent; 0 if there is no item of it and none was predicted."""
    predicted, gold = items["predicted"] == 1, items["gold"] == 1
    found = 2 * np.sum(predicted & gold)
    total = np.sum(predicted) + np.sum(gold)
    return 100 * float(found / total) if total else 0.0


def _accuracy(items: Items) -> float:
    return 100 * float(np.mean(items["predicted"] == items["gold"]))


def _accuracy_and_f1(items: Items) -> float:
    return (_accuracy(items) + _f1(items)) / 2


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Return the Pearson correlation of two arrays `(n,)`; not a number if one is constant."""
    first, second = standardised(x), standardised(y)
    if first is None or second is None:
        return float("nan")
    return float(np.clip(np.dot(first, second), -1, 1))


def standardised(x: np.ndarray) -> np.ndarray | None:
    """Return `x` `(n,)` in float64 with mean 0, scaled to length 1; `None` if it is constant."""
    # Rounding would leave a remainder after the mean of a constant is subtracted.
    if np.all(x == x[0]):
        return None
    x = np.asarray(x, dtype=np.float64)
    x = x - np.mean(x)
    x = x / np.abs(x).max()  # otherwise the squares of very small numbers underflow to 0
    return x / np.linalg.norm(x)


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Return the Spearman correlation of two arrays `(n,)`; equal values share their mean rank.

    >>> round(spearman(np.array([1, 2, 3]), np.array([10, 30, 20])), 6)
    0.5
    """
    return pearson(_ranks(x), _ranks(y))


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1 up; equal values share the mean of their ranks."""
    if values.dtype.kind not in "iu" or np.ptp(values) > 64 * len(values):
        values = np.unique(values, return_inverse=True)[1]
    values = values - values.min()
    counts = np.bincount(values)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[values]


def _average_precision(items: Items) -> float:
    """Return the mean precision at each relevant item, ordered by `predicted`, in percent.

    Items of equal values have the precision after the last of them, as in scikit-learn. It is not a
    number if no item is relevant.
    """
    order = np.argsort(-items["predicted"], kind="stable")
    gold, values = items["gold"][order], items["predicted"][order]
    if not gold.any():
        return float("nan")
    ends = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)
    found = np.cumsum(gold)[ends]
    return 100 * float(np.diff(found, prepend=0) @ (found / (ends + 1)) / found[-1])


def _macro_f1(items: Items) -> float:
    """Return the mean F1 of the classes that occur or were predicted, in percent."""
    predicted, gold = items["predicted"], items["gold"]
    each = []
    for label in np.union1d(predicted, gold):
        found, there = predicted == label, gold == label
        each.append(2 * np.sum(found & there) / (np.sum(found) + np.sum(there)))
    return 100 * float(np.mean(each))


def _deviation(items: Items) -> float:
    """Return the standard deviation of the values, in percent."""
    return 100 * float(np.std(items["value"]))


MEASURES = {"pearson": pearson, "spearman": spearman}
"""The correlations, by name."""


def _correlation(
    measure: Callable[[np.ndarray, np.ndarray], float], over: str
) -> Callable[[Items], float]:
    """Make a statistic that correlates `predicted` with `gold` by `measure`.

    It is over `all` items at once, or the `mean` over subsets, or `wmean`, weighted by their sizes.
    """

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
    "mean": lambda items: 100 * _plain_mean(items),
    "plain_mean": _plain_mean,
    "log_mean": _log_mean,
    "accuracy": _accuracy,
    "f1": _f1,
    "accuracy_and_f1": _accuracy_and_f1,
    **{
        f"{name}_{over}": _correlation(measure, over)
        for name, measure in MEASURES.items()
        for over in OVER
    },
    "macro_f1": _macro_f1,
    "average_precision": _average_precision,
    "deviation": _deviation,
}
"""Functions from items to a value, by name.

* `mean` of `value` in percent; `plain_mean`, the mean itself; `log_mean`, its natural logarithm.
* `accuracy`, `f1` and `accuracy_and_f1`, the mean of both, compare classes `predicted` and `gold`;
  `f1` is that of class 1, and `macro_f1` the mean over classes.
* Correlations such as `spearman_all`, of `predicted` with `gold`: over `all` items, as the `mean`
  over subsets, or as `wmean`, that mean weighted by the sizes of subsets.
* `average_precision` of `predicted`, any numbers, for `gold`, 1 or 0; `deviation` of `value`.
"""
