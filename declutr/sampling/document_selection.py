"""Which documents are long enough to draw spans from, and what happens to the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from declutr.sampling.spans import SpanSampler

logger = logging.getLogger(__name__)

POLICIES = ("shrink", "skip", "error")
_AT_ONCE = 1 << 20  # documents looked at together


class UnusableDocuments(ValueError):
    """Documents, or a policy for short ones, that cannot be trained on."""


@dataclass(frozen=True)
class DocumentSelection:
    """A policy for documents of fewer than 2 * A * max_span_len tokens.

    # Parameters

    short_documents : `"shrink"` keeps them (their spans are shortened), `"skip"` leaves them out,
        `"error"` raises.
    min_document_len : documents of fewer tokens are left out whatever the policy, and so are those
        of fewer than 2 * A, from which no spans can be drawn at all.

    # Raises

    `UnusableDocuments` : an unknown policy.
    """

    short_documents: str = "shrink"
    min_document_len: int = 0

    def __post_init__(self) -> None:
        if self.short_documents not in POLICIES:
            raise UnusableDocuments(
                f"Unknown short_documents '{self.short_documents}': expected one of "
                f"{', '.join(POLICIES)}."
            )

    def rows(self, lengths: np.ndarray, sampler: SpanSampler, source: str) -> np.ndarray:
        """The rows, in order, of documents of these `lengths` (in tokens) that are used.

        `source` names the corpus in the log, which counts what is left out, and in errors.

        # Raises

        `UnusableDocuments` : a short document with the policy `"error"`, or none long enough.
        """
        needed = sampler.min_document_len
        least = max(self.min_document_len, 2 * sampler.num_anchors)
        used_from = max(least, needed) if self.short_documents == "skip" else least
        longest = blank = short = num_kept = 0
        first_short: int | None = None
        for begin, part in _parts(lengths):
            longest, blank = max(longest, int(part.max())), blank + int((part == 0).sum())
            is_short = (part >= least) & (part < needed)
            if first_short is None and is_short.any():
                first_short = begin + int(np.argmax(is_short))
            short += int(is_short.sum())
            num_kept += int((part >= used_from).sum())
        if self.short_documents == "error" and first_short is not None:
            raise UnusableDocuments(
                f"{source}: row {first_short + 1} has {lengths[first_short]} tokens, and {short} "
                f"of {len(lengths)} documents have fewer than 2 * num_anchors * max_span_len = "
                f"{needed}. Set short_documents to 'shrink' or 'skip', or lower max_span_len."
            )
        logger.info(
            "%s: %d documents; %d used, of which %d with shrunken spans; %d skipped (%d blank).",
            source,
            len(lengths),
            num_kept,
            0 if self.short_documents == "skip" else short,
            len(lengths) - num_kept,
            blank,
        )
        if not num_kept:
            raise UnusableDocuments(
                f"{source}: none of the {len(lengths)} documents is long enough. The longest has "
                f"{longest} tokens, and at least {used_from} are needed (short_documents is "
                f"'{self.short_documents}', min_document_len is {self.min_document_len}). Lower "
                "max_span_len, num_anchors or min_document_len, or set short_documents to 'shrink'."
            )
        return _rows_where(lambda part: part >= used_from, lengths, num_kept)


def all_rows(count: int) -> np.ndarray:
    """The rows 0 to `count` - 1, in the narrowest integers that hold them."""
    return np.arange(count, dtype=_row_type(count))


def blank_rows(lengths: np.ndarray) -> np.ndarray:
    """The rows of no token, in order, in the narrowest integers that hold all rows."""
    count = sum(int((part == 0).sum()) for _, part in _parts(lengths))
    return _rows_where(lambda part: part == 0, lengths, count)


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


def _row_type(count: int) -> np.dtype:
    return np.dtype(np.int32 if count <= np.iinfo(np.int32).max else np.int64)


def _rows_where(
    chosen: Callable[[np.ndarray], np.ndarray], lengths: np.ndarray, count: int
) -> np.ndarray:
    """The rows, `count` of them, where `chosen` says so of a part of `lengths`."""
    rows = np.empty(count, dtype=_row_type(len(lengths)))
    filled = 0
    for begin, part in _parts(lengths):
        found = np.flatnonzero(chosen(part))
        rows[filled : filled + len(found)] = found + begin
        filled += len(found)
    return rows


def _parts(lengths: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """A long array piece by piece, so that what is computed of it never lies in memory whole."""
    for begin in range(0, len(lengths), _AT_ONCE):
        yield begin, np.asarray(lengths[begin : begin + _AT_ONCE])
