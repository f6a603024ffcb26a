"""What a label is: one of some classes, or a score in a range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from declutr.corpus.documents import SourceError

UNLABELLED = ("", "-", "-1", "-1.0")
"""No label: none published, or annotators did not agree."""


@dataclass(frozen=True)
class Classes:
    """Classes by name.

    # Parameters

    names : in the order of their numbers on the Hugging Face hub; by default any is a class.
    unlabelled : what stands where there is no label.
    """

    names: tuple[str, ...] = ()
    unlabelled: tuple[str, ...] = UNLABELLED

    def read(self, value: Any, place: str) -> str | None:
        """The name of a class, given by name (in any case) or number; `None` for no label.

        # Raises

        `SourceError` : it is none of the classes.
        """
        name = "" if value is None else str(value).strip()
        if name in self.unlabelled:
            return None
        if not isinstance(value, (str, int)):
            raise SourceError(
                f"{place}: the label is {value!r}, expected a class: a string or an int. Set "
                "labels to 'score' for numbers to be predicted."
            )
        if not self.names:
            return name
        if name.lower() in self.names:
            return name.lower()
        if name.isdecimal() and int(name) < len(self.names):
            return self.names[int(name)]
        raise SourceError(
            f"{place}: the label is {value!r}, expected one of {', '.join(self.names)} (or its "
            "number, from 0). Is this a file of another task?"
        )


@dataclass(frozen=True)
class Scores:
    """Numbers from `lowest` to `highest`.

    # Parameters

    unlabelled : what stands where there is no score.
    """

    lowest: float = -math.inf
    highest: float = math.inf
    unlabelled: tuple[str, ...] = UNLABELLED

    def read(self, value: Any, place: str) -> float | None:
        """The score; `None` for none.

        # Raises

        `SourceError` : it is no finite number, or out of range.
        """
        if value is None or str(value).strip() in self.unlabelled:
            return None
        try:
            score = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            score = math.nan
        if not math.isfinite(score) or not self.lowest <= score <= self.highest:
            bounded = math.isfinite(self.lowest)
            expected = f" from {self.lowest:g} to {self.highest:g}" if bounded else ""
            raise SourceError(
                f"{place}: the label is {value!r}, expected a number{expected}. Is this a file of "
                "another task, or the label in another column?"
            )
        return score
