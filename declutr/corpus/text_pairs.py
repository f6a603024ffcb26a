"""Pairs of texts, with negatives and labels, from the rows of tables."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, cycle
from typing import Any, NamedTuple

from declutr.corpus.tables import Column, Row
from declutr.corpus.text_files import SourceError

logger = logging.getLogger(__name__)

NLI_CLASSES = ("entailment", "neutral", "contradiction")
"""In the order of their numbers, which is that of SNLI and MNLI on the Hugging Face hub."""

_NO_CLASS = ("", "-", "-1")  # annotators did not agree

# The columns of SNLI and MNLI: on the hub and in many copies, and in the files of their authors.
_NLI_NAMES = (("premise", "sentence1"), ("hypothesis", "sentence2"), ("label", "gold_label"))

LabelOf = Callable[[Any, str], int | float]
"""Makes a label of what a row has in its column, and of the place of the row."""


class TextPair(NamedTuple):
    """A text, one that belongs to it, hard negatives that only seem to, and a label."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    label: int | float | None = None


@dataclass(frozen=True)
class Columns:
    """Where the parts of a pair are; `None` where there is none, or the usual ones are meant.

    # Parameters

    anchor, positive, label : names, or numbers from 0.
    negatives : of hard negatives. A column of JSON may hold a list of them.
    """

    anchor: Column | None = None
    positive: Column | None = None
    negatives: tuple[Column, ...] = ()
    label: Column | None = None

    @property
    def given(self) -> list[Column]:
        """Those that are not `None`."""
        every = (self.anchor, self.positive, self.label, *self.negatives)
        return [column for column in every if column is not None]


def read_pairs(
    rows: Iterable[Row], columns: Columns, source: str, label_of: LabelOf | None = None
) -> list[TextPair]:
    """The pair of each row. Rows without one of their texts are left out, which the log counts.

    # Parameters

    columns : by default "anchor" and "positive", or the first and second.
    source : names the data in messages.
    label_of : makes the labels.

    # Raises

    `SourceError` : a column that is missing, a bad label, rows with differing numbers of negatives,
        or not one pair.
    """
    pairs: list[TextPair] = []
    blank: list[str] = []
    for number, row in enumerate(rows):
        if number == 0:
            columns = _known_columns(columns, row, (("anchor",), ("positive",), ("label",)))
        texts = [row.text(columns.anchor), row.text(columns.positive)]  # type: ignore[arg-type]
        negatives = tuple(chain.from_iterable(map(row.texts, columns.negatives)))
        if not all((*texts, *negatives)):
            blank.append(row.place)
            continue
        if pairs and len(negatives) != len(pairs[0].negatives):
            raise SourceError(
                f"{row.place} has {len(negatives)} negative(s), expected "
                f"{len(pairs[0].negatives)} as in the rows before: all need equally many."
            )
        label = None
        if label_of is not None:
            label = label_of(row.value(columns.label), row.place)  # type: ignore[arg-type]
        pairs.append(TextPair(texts[0], texts[1], negatives, label))
    if blank:
        logger.warning(
            "%s: %d row(s) are left out, as one of their texts is blank; the first is %s.",
            source,
            len(blank),
            blank[0],
        )
    if not pairs:
        raise SourceError(
            f"{source}: no row holds a pair of texts ({len(blank)} have a blank one). Expected "
            "rows with a text and one that belongs to it."
        )
    logger.info("%s: %d pairs of %d rows.", source, len(pairs), len(pairs) + len(blank))
    return pairs


def _known_columns(columns: Columns, row: Row, usual: Sequence[Sequence[str]]) -> Columns:
    """`columns` with the usual ones, by name or else by number, where none is given."""
    named = any(isinstance(column, str) for column in row.values)
    found = [columns.anchor, columns.positive, columns.label]
    for number, names in enumerate(usual):
        if found[number] is None:
            there = (name for name in names if name in row.values)
            found[number] = next(there, names[0] if named else number)
    return Columns(found[0], found[1], columns.negatives, found[2])


def read_nli_pairs(rows: Iterable[Row], columns: Columns, source: str) -> list[TextPair]:
    """Premise, hypothesis and class of each row, for Sentence-BERT (Reimers & Gurevych, 2019).

    # Parameters

    columns, source : as for `read_pairs`; by default the columns are those of SNLI and MNLI, or the
        first three.

    # Raises

    `SourceError` : a missing column, an unknown label, or not one row with a class.
    """
    pairs, rows_read = [], 0
    for rows_read, row in enumerate(rows, start=1):
        if rows_read == 1:
            columns = _known_columns(columns, row, _NLI_NAMES)
        premise, hypothesis = row.text(columns.anchor), row.text(columns.positive)  # type: ignore[arg-type]
        number = nli_class(row.value(columns.label), row.place)  # type: ignore[arg-type]
        if premise and hypothesis and number is not None:
            pairs.append(TextPair(premise, hypothesis, label=number))
    logger.info(
        "%s: %d rows; %d left out, without a class or with a blank text.",
        source,
        rows_read,
        rows_read - len(pairs),
    )
    if not pairs:
        raise SourceError(
            f"{source}: none of {rows_read} rows has a premise, a hypothesis and a class."
        )
    return pairs


def read_nli_triplets(rows: Iterable[Row], columns: Columns, source: str) -> list[TextPair]:
    """A premise, what it entails, and what contradicts it (SimCSE; Gao et al., 2021, section 4).

    Rows (`read_nli_pairs`) are put together by their premise. Each of its entailments
    makes a triplet, with its contradictions in turn where they are not equally many. Premises
    without both are left out, and so are neutral rows and repeated ones.

    # Raises

    `SourceError` : as there, or not one premise with both.
    """
    # A dictionary holds each hypothesis once, in order.
    premises: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for pair in read_nli_pairs(rows, columns, source):
        entailed, contradicting = premises.setdefault(pair.anchor, ({}, {}))
        if pair.label == NLI_CLASSES.index("entailment"):
            entailed[pair.positive] = None
        elif pair.label == NLI_CLASSES.index("contradiction"):
            contradicting[pair.positive] = None
    triplets = [
        TextPair(premise, positive, (negative,))
        for premise, (entailed, contradicting) in premises.items()
        for positive, negative in zip(entailed, cycle(contradicting), strict=False)
    ]
    used = len({triplet.anchor for triplet in triplets})
    logger.info(
        "%s: %d triplets of %d premises; %d premises lack an entailment or a contradiction.",
        source,
        len(triplets),
        used,
        len(premises) - used,
    )
    if not triplets:
        raise SourceError(
            f"{source}: none of {len(premises)} premises has both an entailment and a "
            "contradiction. Rows with the same premise make a triplet."
        )
    return triplets


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
