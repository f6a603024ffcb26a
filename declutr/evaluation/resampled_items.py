"""Bootstrap samples of test items, as counts of how often each item was drawn."""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from declutr.evaluation.scores import Items, pearson, standardised

_NEARLY_CONSTANT = 1e-8  # share of the variance below which moments have too few digits


class Draws:
    """Random samples of as many items, which all parts of that size and subset share."""

    def __init__(self, size: int, seed: Sequence[int]) -> None:
        self._size, self._rng = size, np.random.default_rng(seed)
        self.counts = np.empty((0, size))
        """How often each item is in each of the last samples, `(b, n)` float64."""

    def draw(self, samples: int) -> None:
        """Draw new samples in place of the last ones."""
        rows = self._rng.integers(self._size, size=(samples, self._size))
        rows += self._size * np.arange(samples)[:, None]
        counts = np.bincount(rows.ravel(), minlength=samples * self._size)
        self.counts = counts.reshape(samples, self._size).astype(np.float64)


class Part:
    """Items that are drawn together, and the statistics of the present samples of them.

    The counts of a part that joins others are theirs.
    """

    def __init__(self, items: Items, drawn: "Draws | Sequence[Part]"):
        self.items = items
        self.size = len(next(iter(items.values())))
        self._drawn = drawn
        self._joined: np.ndarray | None = None
        self._known: dict[str, np.ndarray] = {}

    def forget(self) -> None:
        """Forget all that was computed from the last samples."""
        self._known.clear()
        self._joined = None

    @property
    def counts(self) -> np.ndarray:
        """How often each item is in each sample, `(b, n)` float64."""
        if isinstance(self._drawn, Draws):
            return self._drawn.counts
        if self._joined is None:
            self._joined = np.concatenate([part.counts for part in self._drawn], axis=1)
        return self._joined

    def mean(self, values: np.ndarray) -> np.ndarray:
        """Return the mean over the items of each sample of values `(n,)`."""
        return self.counts @ np.asarray(values, dtype=np.float64) / self.size

    def correlation(self, measure: str) -> np.ndarray:
        """Return the correlations of `predicted` with `gold`, `(b,)`."""
        if measure not in self._known:
            self._known[measure] = self._pearson() if measure == "pearson" else self._spearman()
        return self._known[measure]

    @cached_property
    def _moments(self) -> np.ndarray | None:
        """The terms that each item adds to the moments of `predicted` and `gold`, `(n, 5)`."""
        x, y = (standardised(self.items[name]) for name in ("predicted", "gold"))
        if x is None or y is None:
            return None
        return np.stack([x, y, x * x, y * y, x * y], axis=1)

    @cached_property
    def _orders(self) -> "tuple[_Order, _Order]":
        return _Order(self.items["predicted"]), _Order(self.items["gold"])

    def _pearson(self) -> np.ndarray:
        if self._moments is None:
            return np.full(len(self.counts), math.nan)
        x, y = self._moments[:, 0], self._moments[:, 1]
        sum_x, sum_y, of_x, of_y, of_both = (self.counts @ self._moments).T  # (b,) each
        of_x, of_y = of_x - sum_x**2 / self.size, of_y - sum_y**2 / self.size
        with np.errstate(invalid="ignore", divide="ignore"):
            found = (of_both - sum_x * sum_y / self.size) / np.sqrt(of_x * of_y)
        for row in np.flatnonzero(np.minimum(of_x, of_y) < _NEARLY_CONSTANT):
            items = np.repeat(np.arange(self.size), self.counts[row].astype(np.int64))
            found[row] = pearson(x[items], y[items])
        return np.clip(found, -1, 1)

    def _spearman(self) -> np.ndarray:
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


def parts_of(
    items: Items,
    known: dict[tuple[bytes, ...], Part],
    draws: dict[tuple[int, int], Draws],
    seed: int,
) -> list[Part]:
    """Return the parts that the subsets of items make; equal parts are the same object.

    # Parameters

    items : items of a score, with or without subsets.
    known : the parts so far, to which new ones are added.
    draws : the samples so far by subset and size, to which new ones are added.
    seed : the seed of the samples.
    """
    subsets = items.get("subset", np.zeros(len(next(iter(items.values()))), dtype=np.int64))
    parts = []
    for subset in np.unique(subsets):
        rows = subsets == subset
        taken = {name: array[rows] for name, array in items.items() if name != "subset"}
        texts = (part for name in sorted(taken) for part in (name.encode(), taken[name].tobytes()))
        key = (str(subset).encode(), *texts)
        if key not in known:
            place = _natural(int(subset)), int(rows.sum())
            if place not in draws:
                draws[place] = Draws(place[1], [seed, place[0]])
            known[key] = Part(taken, draws[place])
        parts.append(known[key])
    return parts


def _natural(number: int) -> int:
    """Map the integers to the natural numbers, which seeds must be."""
    return 2 * number if number >= 0 else -2 * number - 1


def joined(parts: Sequence[Part]) -> Part:
    """Return the items of all parts as one, with the samples of the parts."""
    if len(parts) == 1:
        return parts[0]
    names = parts[0].items
    items = {name: np.concatenate([part.items[name] for part in parts]) for name in names}
    return Part(items, parts)
