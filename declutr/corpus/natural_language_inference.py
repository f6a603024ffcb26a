"""Pairs with classes, and triplets, from rows of premise, hypothesis and label."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import cycle

from declutr.corpus.pair_labels import NLI_CLASSES, nli_class
from declutr.corpus.tables import Row
from declutr.corpus.text_files import SourceError
from declutr.corpus.text_pairs import Columns, TextPair, known_columns

logger = logging.getLogger(__name__)

# The columns of SNLI and MNLI: on the hub and in many copies, and in the files of their authors.
_NLI_NAMES = (
    ("premise", "sentence1"),
    ("hypothesis", "sentence2"),
    ("label", "gold_label"),
)


def read_nli_pairs(rows: Iterable[Row], columns: Columns, source: str) -> list[TextPair]:
    """Premise, hypothesis and class of each row, for Sentence-BERT (Reimers & Gurevych, 2019).

    # Parameters

    columns : of premise (`anchor`), hypothesis (`positive`) and label; by default those of SNLI
        and MNLI, or the first three.
    source : names the data in messages.

    # Raises

    `SourceError` : a missing column, an unknown label, or not one row with a class.
    """
    pairs, rows_read = [], 0
    for row in rows:
        rows_read += 1
        if rows_read == 1:
            columns = known_columns(columns, row, _NLI_NAMES)
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
    """A premise, what it entails, and what contradicts it, for supervised SimCSE.

    So Gao et al. (2021, section 4). Rows are put together by their premise. Each of its entailments
    makes a triplet, with its contradictions in turn where they are not equally many. Premises
    without both are left out, and so are neutral rows and repeated ones.

    # Parameters

    columns, source : as for `read_nli_pairs`.

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
