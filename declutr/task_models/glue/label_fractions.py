"""A part of a labelled set, as if only so many labels were known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from declutr.sampling.document_selection import all_rows, shuffled

_BINS = 10  # of scores


def fraction_of_rows(
    labels: Sequence[str] | Sequence[float], fraction: float, seed: int
) -> list[int]:
    """Which rows have a label, in order.

    As many of each class as its share, rounded, and at least one; scores are divided into tenths,
    of equally many rows where no scores are equal. Rows depend on labels, fraction and seed alone,
    and those of a smaller fraction are among those of a larger one.

    # Parameters

    labels : classes or scores, `(n,)`.
    fraction : above 0 and at most 1.

    # Raises

    `ValueError` : the fraction is something else, or there are no labels.
    """
    require_fraction(fraction)
    if not labels:
        raise ValueError("There are no labels of which label_fraction could keep a part.")
    strata = _strata(labels)
    order = shuffled(all_rows(len(labels)), (seed,))
    chosen: list[int] = []
    for stratum in np.unique(strata):
        members = order[strata[order] == stratum]
        count = max(1, int(fraction * len(members) + 0.5))
        chosen += members[:count].tolist()
    return sorted(chosen)


def require_fraction(fraction: float) -> None:
    """# Raises

    `ValueError` : it is no share of something.
    """
    if not 0 < fraction <= 1:
        raise ValueError(
            f"label_fraction is {fraction}, expected a share above 0 and at most 1, such as 0.1 "
            "for 10 %."
        )


def _strata(labels: Sequence[str] | Sequence[float]) -> np.ndarray:
    """The number of the class, or of the tenth of scores, of each row: `(n,)`."""
    values = np.array(labels)
    if values.dtype.kind != "f":
        return np.unique(values, return_inverse=True)[1]
    edges = np.quantile(values, np.linspace(0, 1, _BINS + 1)[1:-1])
    return np.searchsorted(edges, values, side="right")  # equal scores are in one part
