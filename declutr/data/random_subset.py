"""A random subset of the rows of a data set, chosen once by a seed."""

from functools import lru_cache
from typing import Any, Optional

import numpy as np
from allennlp.common import FromParams
from allennlp.common.checks import ConfigurationError

from declutr.sampling.document_selection import all_rows, shuffled


class RandomSubset(FromParams):
    """A part of the rows that a reader gives, drawn without replacement and kept in their order.

    It depends on the seed and the number of rows alone: it is the same in every epoch, process and
    resumed run. With one seed, a smaller subset is part of every larger one.

    # Parameters

    size : the number of rows. Give it or `fraction`.
    fraction : the share of the rows, above 0 and at most 1; it is rounded to at least one row.
    seed : the seed of the choice.

    # Raises

    `ConfigurationError` : both or neither of `size` and `fraction` are given, or one is out of
        range.
    """

    def __init__(
        self, size: Optional[int] = None, fraction: Optional[float] = None, seed: int = 13370
    ) -> None:
        if (size is None) == (fraction is None):
            raise ConfigurationError(
                f"Got size {size} and fraction {fraction} of a subset; expected one of them."
            )
        if (size is not None and size < 1) or (fraction is not None and not 0 < fraction <= 1):
            raise ConfigurationError(
                "Expected a subset of size 1 or more, or of a fraction above 0 and at most 1, got "
                f"{fraction if size is None else size}."
            )
        self.size, self.fraction, self.seed = size, fraction, seed

    def of(self, rows: np.ndarray, source: str) -> np.ndarray:
        """Return the chosen rows in the order of `rows`; `source` names them in errors.

        # Raises

        `ConfigurationError` : there are fewer rows than `size`.
        """
        count = self.size or max(1, int((self.fraction or 1) * len(rows) + 0.5))
        if count > len(rows):
            raise ConfigurationError(
                f"{source} gives {len(rows)} rows, fewer than the subset of {count} that was asked "
                "for. Lower subset.size, or remove subset."
            )
        return rows[_places(len(rows), count, self.seed)]

    def record(self, rows: int) -> dict[str, Any]:
        """Return what a run record says of the subset of this many rows."""
        return {"size": self.size, "fraction": self.fraction, "seed": self.seed, "of": rows}


@lru_cache(maxsize=4)
def _places(rows: int, count: int, seed: int) -> np.ndarray:
    return np.sort(shuffled(all_rows(rows), (seed,))[:count])
