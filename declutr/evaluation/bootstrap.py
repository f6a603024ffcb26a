"""Bootstrap intervals of scores, and of differences between encoders (Efron, 1979).

A bootstrap sample draws as many test items as there are, with replacement. It is stored as the
number of times that each item was drawn, so that a statistic of many samples is a few operations on
a matrix of counts. Scores on the same items share the samples and what is computed from them.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from declutr.evaluation.resampled_items import Draws, Part, joined, parts_of
from declutr.evaluation.scores import MEASURES, OVER, Score

RESAMPLES = 1000
"""The default number of bootstrap samples."""
_COUNTS_AT_ONCE = 2**20  # counts of items that are in memory together, 8 MiB


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
    return [percentiles(of_one, confidence) for of_one in values]


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
    return percentiles(of_first - of_second, confidence)


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
    known: dict[tuple[bytes, ...], Part] = {}
    draws: dict[tuple[int, int], Draws] = {}
    together: dict[tuple[int, ...], Part] = {}
    each = []
    for score in scores:
        parts = parts_of(score.items, known, draws, seed)
        key = tuple(map(id, parts))
        if key not in together:
            together[key] = joined(parts)
        each.append((_STATISTICS[score.statistic], together[key], parts))
    drawn = np.empty((len(scores), resamples))
    longest = max((score.count for score in scores), default=1)
    step = max(1, min(resamples, _COUNTS_AT_ONCE // longest))
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        for of_size in draws.values():
            of_size.draw(size)
        for part in [*known.values(), *together.values()]:
            part.forget()
        for row, (statistic, whole, parts) in enumerate(each):
            drawn[row, start : start + size] = statistic(whole, parts)
    return drawn


def same_items(ours: Score, theirs: Score) -> bool:
    """Return whether two scores are the same statistic of the same test items, as far as known."""
    kinds = {(score.name, score.statistic, frozenset(score.items)) for score in (ours, theirs)}
    if len(kinds) > 1:
        return False
    lengths = {len(array) for score in (ours, theirs) for array in score.items.values()}
    return len(lengths) == 1 and all(
        np.array_equal(ours.items[name], theirs.items[name])
        for name in ("gold", "subset")  # these items do not depend on the encoder
        if name in ours.items
    )


def percentiles(values: np.ndarray, confidence: float = 0.95) -> Interval:
    """Return the bounds between which the share `confidence` of values `(B,)` lies.

    Values that are not numbers do not count; the bounds are not numbers if there are no others.
    """
    # A bootstrap sample may have no value, for example if all its gold scores are equal.
    defined = values[~np.isnan(values)]
    tail = 50 * (1 - confidence)
    low, high = np.percentile(defined if len(defined) else [math.nan], [tail, 100 - tail])
    return Interval(float(low), float(high))


_Statistic = Callable[[Part, Sequence[Part]], np.ndarray]


def _log_mean(whole: Part, parts: Sequence[Part]) -> np.ndarray:
    means = whole.mean(whole.items["value"])
    return np.log(means, out=np.full(len(means), math.nan), where=means > 0)


def _accuracy(whole: Part, parts: Sequence[Part]) -> np.ndarray:
    return 100 * whole.mean(whole.items["predicted"] == whole.items["gold"])


def _f1(whole: Part, parts: Sequence[Part]) -> np.ndarray:
    predicted, gold = whole.items["predicted"] == 1, whole.items["gold"] == 1
    found, total = 2 * whole.mean(predicted & gold), whole.mean(predicted) + whole.mean(gold)
    return 100 * np.divide(found, total, out=np.zeros(len(total)), where=total > 0)


def _correlation(measure: str, over: str) -> _Statistic:
    def correlation(whole: Part, parts: Sequence[Part]) -> np.ndarray:
        if over == "all":
            return 100 * whole.correlation(measure)
        weights = [part.size for part in parts] if over == "wmean" else None
        return 100 * np.average([p.correlation(measure) for p in parts], axis=0, weights=weights)

    return correlation


def _macro_f1(whole: Part, parts: Sequence[Part]) -> np.ndarray:
    predicted, gold = whole.items["predicted"], whole.items["gold"]
    labels = np.union1d(predicted, gold)
    rows, shape = np.arange(whole.size), (whole.size, len(labels))
    # Most entries are 0: with thousands of classes, dense ones would not fit into memory.
    found, there = (
        csr_matrix((np.ones(whole.size), (rows, np.searchsorted(labels, each))), shape)
        for each in (predicted, gold)
    )
    right = 2 * (whole.counts @ found.multiply(there).tocsr())  # (b, C)
    total = whole.counts @ (found + there)
    each = np.divide(right, total, out=np.zeros_like(right), where=total > 0)
    return 100 * each.sum(axis=1) / (total > 0).sum(axis=1)


def _average_precision(whole: Part, parts: Sequence[Part]) -> np.ndarray:
    order = np.argsort(-whole.items["predicted"], kind="stable")
    gold, values = whole.items["gold"][order], whole.items["predicted"][order]
    ends = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)
    drawn = whole.counts[:, order]  # (b, n)
    found, seen = (np.cumsum(each, axis=1)[:, ends] for each in (drawn * gold, drawn))
    precision = np.divide(found, seen, out=np.zeros_like(found), where=seen > 0)
    total = (np.diff(found, axis=1, prepend=0) * precision).sum(axis=1)
    none = np.full(len(total), math.nan)
    return 100 * np.divide(total, found[:, -1], out=none, where=found[:, -1] > 0)


def _deviation(whole: Part, parts: Sequence[Part]) -> np.ndarray:
    centred = whole.items["value"] - np.mean(whole.items["value"])
    variance = whole.mean(centred**2) - whole.mean(centred) ** 2
    return 100 * np.sqrt(np.maximum(variance, 0))


_STATISTICS: dict[str, _Statistic] = {
    "mean": lambda whole, parts: 100 * whole.mean(whole.items["value"]),
    "plain_mean": lambda whole, parts: whole.mean(whole.items["value"]),
    "log_mean": _log_mean,
    "accuracy": _accuracy,
    "f1": _f1,
    "accuracy_and_f1": lambda *items: (_accuracy(*items) + _f1(*items)) / 2,
    **{f"{measure}_{over}": _correlation(measure, over) for measure in MEASURES for over in OVER},
    "macro_f1": _macro_f1,
    "average_precision": _average_precision,
    "deviation": _deviation,
}
"""The statistics of `declutr.evaluation.scores.STATISTICS`, of all samples at once."""
