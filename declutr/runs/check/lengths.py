"""How long the rows of a corpus are: quantiles and a histogram."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)
_BINS = 12


@dataclass(frozen=True)
class Lengths:
    """How many tokens the rows of a corpus have.

    # Parameters

    quantiles : the length by the share of rows that are no longer, in words such as `"50 %"`.
    bins : the first and the last length of each bar of a histogram, and the number of rows in it.
    """

    quantiles: dict[str, int]
    bins: list[tuple[int, int, int]]


def lengths_of(lengths: np.ndarray) -> Lengths | None:
    """Return quantiles and a histogram of lengths in tokens, `(n,)`; `None` without any."""
    if not len(lengths):
        return None
    values = np.quantile(lengths, _QUANTILES, method="inverted_cdf")
    quantiles = {f"{share:.0%}": int(v) for share, v in zip(_QUANTILES, values, strict=True)}
    low, high = int(lengths.min()), int(lengths.max())
    # The longest documents of a corpus can be a hundred times as long as most.
    top = max(int(np.quantile(lengths, 0.99)), low)
    step = _round(max(1, math.ceil((top - low + 1) / _BINS)))
    start = low // step * step
    edges = [*range(start, top + 1, step)]
    bins = []
    for edge in edges:
        last = edge + step - 1 if edge != edges[-1] else max(high, edge)
        number = int(np.count_nonzero((lengths >= edge) & (lengths <= last)))
        bins.append((edge, last, number))
    return Lengths(quantiles, bins)


def _round(step: int) -> int:
    """Return the next number of the form 1, 2 or 5 times a power of ten."""
    power = 10 ** (len(str(step)) - 1)
    return next(times * power for times in (1, 2, 5, 10) if times * power >= step)
