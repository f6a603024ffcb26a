"""Which documents are long enough to draw spans from, and what happens to the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from declutr.sampling.spans import SpanSampler

logger = logging.getLogger(__name__)

Chosen = Callable[[np.ndarray], np.ndarray]

_AT_ONCE = 1 << 20  # documents looked at together


class UnusableDocuments(ValueError):
    """Documents that cannot be trained on."""


@dataclass(frozen=True)
class DocumentSelection:
    """A policy for documents of fewer than 2 * A * max_span_len tokens.

    # Parameters

    short_documents : `"shrink"` keeps them (their spans are shortened), `"skip"` leaves them out,
        `"error"` raises.
    min_document_len : documents of fewer tokens are left out whatever the policy, and so are those
        of fewer than 2 * A, from which no spans can be drawn at all.
    """

    short_documents: str = "shrink"
    min_document_len: int = 0

    def rows(self, lengths: np.ndarray, sampler: SpanSampler, source: str) -> np.ndarray:
        """The rows, in order, of documents of these `lengths` (in tokens) that are used.

        `source` names the corpus in the log, which counts what is left out, and in errors.

        # Raises

        `UnusableDocuments` : a short document with the policy `"error"`, or none long enough.
        """
        needed = sampler.min_document_len
        least = max(self.min_document_len, 2 * sampler.num_anchors)
        used_from = max(least, needed) if self.short_documents == "skip" else least

        def is_short(part: np.ndarray) -> np.ndarray:
            return (part >= least) & (part < needed)

        short = count_where(is_short, lengths)
        if self.short_documents == "error" and short:
            first = rows_where(is_short, lengths)[0]
            raise UnusableDocuments(
                f"{source}: row {first + 1} has {lengths[first]} tokens, and {short} "
                f"of {len(lengths)} documents have fewer than 2 * num_anchors * max_span_len = "
                f"{needed}. Set short_documents to 'shrink' or 'skip', or lower max_span_len."
            )
        rows = rows_where(lambda part: part >= used_from, lengths)
        logger.info(
            "%s: %d documents; %d used, of which %d with shrunken spans; %d skipped (%d blank).",
            source,
            len(lengths),
            len(rows),
            0 if self.short_documents == "skip" else short,
            len(lengths) - len(rows),
            count_where(is_blank, lengths),
        )
        if not len(rows):
            raise UnusableDocuments(
                f"{source}: none of the {len(lengths)} documents is long enough. The longest has "
                f"{lengths.max(initial=0)} tokens, and at least {used_from} are needed "
                f"(short_documents is '{self.short_documents}', min_document_len is "
                f"{self.min_document_len}). Lower max_span_len, num_anchors or min_document_len, "
                "or set short_documents to 'shrink'."
            )
        return rows


def all_rows(count: int) -> np.ndarray:
    """The rows 0 to `count` - 1, in the narrowest integers that hold them."""
    return np.arange(count, dtype=row_type(count))


def is_blank(lengths: np.ndarray) -> np.ndarray:
    """Which rows have no token."""
    return lengths == 0


def shuffled(rows: np.ndarray, seed: tuple[int, ...]) -> np.ndarray:
    """`rows` in an order that depends on their number and `seed` alone; a copy and no more."""
    rows = rows.copy()
    np.random.default_rng(seed).shuffle(rows)
    return rows


def shuffled_batches(rows: np.ndarray, size: int, seed: tuple[int, ...]) -> np.ndarray:
    """`rows` in an order of batches of `size`, each of rows that follow each other.

    Where batches begin varies with the seed, so that no two neighbours are always apart. The rows
    before the first batch go with those at the end, so one batch may hold both. What does not fill
    a batch comes last.
    """
    generator = np.random.default_rng(seed)
    rows = np.roll(rows, -int(generator.integers(size)))
    whole = len(rows) // size * size
    batches = rows[:whole].reshape(-1, size)
    return np.concatenate([batches[generator.permutation(len(batches))].ravel(), rows[whole:]])


def shares(
    rows: np.ndarray, cuts: np.ndarray, process: int, processes: int
) -> Iterator[np.ndarray]:
    """What one of several processes has of each batch of `rows`, which begin and end at `cuts`.

    All have equally many: where a batch does not divide, its last rows are left out.
    """
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        share = (end - begin) // processes
        start = begin + process * share
        yield rows[start : start + share]


def row_type(count: int) -> np.dtype:
    """The narrowest integers that hold the numbers of so many rows."""
    return np.dtype(np.int32 if count <= np.iinfo(np.int32).max else np.int64)


def rows_where(chosen: Chosen, lengths: np.ndarray) -> np.ndarray:
    """The rows, in order, where `chosen` says so of a part of `lengths`."""
    rows = np.empty(count_where(chosen, lengths), dtype=row_type(len(lengths)))
    filled = 0
    for begin, part in _parts(lengths):
        found = np.flatnonzero(chosen(part))
        rows[filled : filled + len(found)] = found + begin
        filled += len(found)
    return rows


def count_where(chosen: Chosen, lengths: np.ndarray) -> int:
    """The number of these rows."""
    return sum(int(np.count_nonzero(chosen(part))) for _, part in _parts(lengths))


def _parts(lengths: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """A long array piece by piece, so that what is computed of it never lies in memory whole."""
    for begin in range(0, len(lengths), _AT_ONCE):
        yield begin, np.asarray(lengths[begin : begin + _AT_ONCE])
