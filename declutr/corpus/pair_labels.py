"""Labels of pairs of texts: classes, scores, and classes of natural language inference."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from declutr.corpus.text_files import SourceError

NLI_CLASSES = ("entailment", "neutral", "contradiction")
"""In the order of their numbers, which is that of SNLI and MNLI on the Hugging Face hub."""

_NO_CLASS = ("", "-", "-1")  # annotators did not agree

LabelOf = Callable[[Any, str], int | float]
"""Makes a label of what a row has in its column, and of the place of the row."""


def class_label(value: Any, place: str) -> int:
    """A class, 0 or above.

    # Raises

    `SourceError` : it is something else.
    """
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise SourceError(
            f"{place}: the label is {value!r}, expected a class, 0 or above. Set labels to "
            "'score' for scores, or to 'nli' for entailment, neutral and contradiction."
        )
    return number


def score_label(max_score: float) -> LabelOf:
    """What makes a share of `max_score` of a score: at most 1, and at least -1.

    The function raises `SourceError` if it is no number in that range. It can be pickled.
    """
    return partial(_share, max_score)


def _share(max_score: float, value: Any, place: str) -> float:
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not abs(score) <= max_score:  # nor if it is not a number
        raise SourceError(
            f"{place}: the label is {value!r}, expected a score of at most {max_score:g}. Set "
            "max_score to the highest there can be, such as 5 for STS."
        )
    return score / max_score


def nli_class(value: Any, place: str) -> int | None:
    """The number in `NLI_CLASSES` of a label, by name or number; `None` if there is no agreement.

    # Raises

    `SourceError` : another label.
    """
    name = "" if value is None else str(value).strip().lower()
    if name in _NO_CLASS:
        return None
    if name in NLI_CLASSES:
        return NLI_CLASSES.index(name)
    if not isinstance(value, bool) and name in ("0", "1", "2"):
        return int(name)
    raise SourceError(
        f"{place}: the label is {value!r}, expected {', '.join(NLI_CLASSES)}, or their numbers 0, "
        "1 and 2 (- or -1 if annotators did not agree)."
    )
