"""Pairs of texts, with negatives and labels, made of the rows of tables."""

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
"""The classes in the order of their numbers in SNLI and MNLI on the Hugging Face hub."""

_NO_CLASS = ("", "-", "-1")  # These labels mean that the annotators did not agree.

# The columns of SNLI and MNLI have the first names on the hub and in many copies, and the second in
# the original files.
_NLI_NAMES = (("premise", "sentence1"), ("hypothesis", "sentence2"), ("label", "gold_label"))

LabelOf = Callable[[Any, str], int | float]
"""A function that makes a label of the value in its column and the place of the row."""


class TextPair(NamedTuple):
    """An anchor, a text that belongs to it, its hard negatives, and a label."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    label: int | float | None = None


@dataclass(frozen=True)
class Columns:
    """The columns of the parts of a pair; `None` for an absent part or the usual column.

    # Parameters

    anchor, positive, label : names, or numbers from 0.
    negatives : the columns of hard negatives. A column of JSON may hold a list of them.
    """

    anchor: Column | None = None
    positive: Column | None = None
    negatives: tuple[Column, ...] = ()
    label: Column | None = None

    @property
    def given(self) -> list[Column]:
        """The columns that are not `None`."""
        every = (self.anchor, self.positive, self.label, *self.negatives)
        return [column for column in every if column is not None]


def read_pairs(
    rows: Iterable[Row], columns: Columns, source: str, label_of: LabelOf | None = None
) -> list[TextPair]:
    """Return the pair of each row.

    Rows with a blank text are left out; a warning gives their number.

    # Parameters

    rows : the rows of a table.
    columns : by default "anchor" and "positive", or the first and second.
    source : names the data in messages.
    label_of : makes the label of a pair; `None` for pairs without labels.

    # Raises

    `SourceError` : if a column is missing, a label is invalid, rows have different numbers of
        negatives, or there is no pair.
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
            f"{source}: {len(blank)} row(s) are left out, as one of their texts is blank; the "
            f"first is {blank[0]}."
        )
    if not pairs:
        raise SourceError(
            f"{source}: no row holds a pair of texts ({len(blank)} have a blank one). Expected "
            "rows with a text and one that belongs to it."
        )
    logger.info("%s: %d pairs of %d rows.", source, len(pairs), len(pairs) + len(blank))
    return pairs


def _known_columns(columns: Columns, row: Row, usual: Sequence[Sequence[str]]) -> Columns:
    """Return `columns` with the usual ones, by name or else by number, where none is given."""
    named = any(isinstance(column, str) for column in row.values)
    found = [columns.anchor, columns.positive, columns.label]
    for number, names in enumerate(usual):
        if found[number] is None:
            there = (name for name in names if name in row.values)
            found[number] = next(there, names[0] if named else number)
    return Columns(found[0], found[1], columns.negatives, found[2])


def read_nli_pairs(rows: Iterable[Row], columns: Columns, source: str) -> list[TextPair]:
    """Return the premise, hypothesis and class of each row, for Sentence-BERT.

    The method is that of Reimers & Gurevych (2019). Rows without a class or with a blank text are
    left out.

    # Parameters

    rows : the rows of a table.
    columns : by default the columns of SNLI and MNLI, or the first three.
    source : names the data in messages.

    # Raises

    `SourceError` : if a column is missing, a label is unknown, or no row has a class.
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
        f"{source}: {rows_read} rows; {rows_read - len(pairs)} left out, without a class or with a "
        "blank text."
    )
    if not pairs:
        raise SourceError(
            f"{source}: none of {rows_read} rows has a premise, a hypothesis and a class."
        )
    return pairs


def read_nli_triplets(rows: Iterable[Row], columns: Columns, source: str) -> list[TextPair]:
    """Return triplets of a premise, an entailed and a contradicting hypothesis, for SimCSE.

    The method is that of Gao et al. (2021, section 4). Rows are grouped by premise. Each entailed
    hypothesis of a premise makes a triplet; if there are fewer contradicting ones, they are used in
    turn. Premises that lack either kind are left out, as are neutral and repeated rows.

    # Parameters

    rows, columns, source : as in `read_nli_pairs`.

    # Raises

    `SourceError` : as in `read_nli_pairs`, or if no premise has both kinds of hypotheses.
    """
    # Dictionaries serve as ordered sets of hypotheses.
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
        f"{source}: {len(triplets)} triplets of {used} premises; {len(premises) - used} premises "
        "lack an entailment or a contradiction."
    )
    if not triplets:
        raise SourceError(
            f"{source}: none of {len(premises)} premises has both an entailment and a "
            "contradiction. Rows with the same premise make a triplet."
        )
    return triplets


def class_label(value: Any, place: str) -> int:
    """Return a class, an integer of 0 or above, which may be given as a string of digits.

    # Raises

    `SourceError` : if the value is not a class.
    """
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise SourceError(
            f"{place}: the label is {value!r}, expected a class, 0 or above. Set labels to "
            "'score' for scores, or to 'nli' for entailment, neutral and contradiction."
        )
    return number


def score_label(max_score: float) -> LabelOf:
    """Return a function that divides a score by `max_score`.

    It raises `SourceError` for a score that is not a number in [-max_score, max_score]. It can be
    pickled.
    """
    return partial(_share, max_score)


def _share(max_score: float, value: Any, place: str) -> float:
    try:
        score = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        score = math.nan
    if not abs(score) <= max_score:  # The comparison is false for NaN, too.
        raise SourceError(
            f"{place}: the label is {value!r}, expected a score of at most {max_score:g}. Set "
            "max_score to the highest there can be, such as 5 for STS."
        )
    return score / max_score


def nli_class(value: Any, place: str) -> int | None:
    """Return the index in `NLI_CLASSES` of a label; `None` if the annotators did not agree.

    # Raises

    `SourceError` : if the label is another one.
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
