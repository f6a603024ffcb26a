"""Pairs of texts, with negatives and labels, from the rows of tables."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from declutr.corpus.pair_labels import LabelOf
from declutr.corpus.tables import Column, Row
from declutr.corpus.text_files import SourceError

logger = logging.getLogger(__name__)


class TextPair(NamedTuple):
    """A text, one that belongs to it, and what else is known."""

    anchor: str
    positive: str
    negatives: tuple[str, ...] = ()
    """Hard ones: near the anchor, and not belonging to it."""
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
    def numbered(self) -> bool:
        """Whether columns are given by numbers, which needs no header."""
        given = (self.anchor, self.positive, self.label, *self.negatives)
        return any(isinstance(column, int) for column in given)


def read_pairs(
    rows: Iterable[Row], columns: Columns, source: str, label_of: LabelOf | None = None
) -> list[TextPair]:
    """The pair of each row. Rows without one of their texts are left out, which the log counts.

    # Parameters

    columns : by default "anchor" and "positive", or the first and second.
    source : names the data in messages.
    label_of : makes a label of what a row has in its column and of the place of the row.

    # Raises

    `SourceError` : a column that is missing, a bad label, rows with differing numbers of negatives,
        or not one pair.
    """
    pairs: list[TextPair] = []
    first: Row | None = None
    blank: list[str] = []
    for row in rows:
        if first is None:
            first, columns = (
                row,
                known_columns(columns, row, (("anchor",), ("positive",), ("label",))),
            )
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


def known_columns(columns: Columns, row: Row, usual: Sequence[Sequence[str]]) -> Columns:
    """`columns` with the usual ones, by name or else by number, where none is given."""
    given = (columns.anchor, columns.positive, columns.label)
    found = [
        column if column is not None else _usual(row, names, number)
        for number, (column, names) in enumerate(zip(given, usual, strict=True))
    ]
    return Columns(found[0], found[1], columns.negatives, found[2])


def _usual(row: Row, names: Sequence[str], number: int) -> Column:
    named = any(isinstance(column, str) for column in row.values)
    return next((name for name in names if name in row.values), names[0] if named else number)
