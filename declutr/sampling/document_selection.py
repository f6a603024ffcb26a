"""Selection of the documents that are long enough to draw spans from, and their order."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from declutr.sampling.spans import SpanSampler

logger = logging.getLogger(__name__)

Chosen = Callable[[np.ndarray], np.ndarray]

_AT_ONCE = 1 << 20  # the number of documents whose lengths are in memory at once


class UnusableDocuments(ValueError):
    """An error about documents that cannot be trained on."""


@dataclass(frozen=True)
class DocumentSelection:
    """A policy for short documents: those of fewer than 2 * A * max_span_len tokens.

    A is the number of anchors that are drawn from a document.

    # Parameters

    short_documents : `"shrink"` keeps short documents and draws shorter spans from them, `"skip"`
        leaves them out, `"error"` raises.
    min_document_len : documents of fewer tokens are left out whatever the policy. Documents of
        fewer than 2 * A tokens are always left out, as no spans can be drawn from them.
    """

    short_documents: str = "shrink"
    min_document_len: int = 0

    def rows(self, lengths: np.ndarray, sampler: SpanSampler, source: str) -> np.ndarray:
        """Return the rows of the documents to train on, in order, and log how many are left out.

        # Parameters

        lengths : the length in tokens of every document of the corpus.
        sampler : the sampler of spans, which says how long a document must be.
        source : the name of the corpus in log lines and errors.

        # Raises

        `UnusableDocuments` : if a document is short and the policy is `"error"`, or if no document
            is long enough.
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
        few = 2 * len(rows) < len(lengths)
        logger.log(
            logging.WARNING if few else logging.INFO,
            f"{source}: {len(lengths)} documents; {len(rows)} used, of which "
            f"{0 if self.short_documents == 'skip' else short} with shrunken spans; "
            f"{len(lengths) - len(rows)} skipped ({count_where(is_blank, lengths)} blank).",
        )
        if not len(rows):
            raise UnusableDocuments(
                f"{source}: none of the {len(lengths)} documents is long enough. The longest has "
                f"{lengths.max(initial=0)} tokens, and at least {used_from} are needed "
                f"(short_documents is '{self.short_documents}', min_document_len is "
                f"{self.min_document_len}). Lower max_span_len, num_anchors or min_document_len, "
                "or set short_documents to 'shrink' "
                """(-o '{"dataset_reader.short_documents": "shrink"}'). For sentences, take a """
                "recipe of sentences: declutr recipes."
            )
        return rows


def all_rows(count: int) -> np.ndarray:
    """Return the rows 0 to `count` - 1 in the integer dtype that `row_type` chooses."""
    return np.arange(count, dtype=row_type(count))


def is_blank(lengths: np.ndarray) -> np.ndarray:
    """Return a mask of the documents without tokens."""
    return lengths == 0


def shuffled(rows: np.ndarray, seed: tuple[int, ...]) -> np.ndarray:
    """Return a shuffled copy of `rows`, whose order depends only on their number and the `seed`."""
    rows = rows.copy()
    np.random.default_rng(seed).shuffle(rows)
    return rows


def shuffled_batches(rows: np.ndarray, size: int, seed: tuple[int, ...]) -> np.ndarray:
    """Return `rows` as shuffled batches, each of `size` consecutive rows.

    The place where the first batch begins depends on the seed, so that two neighbouring rows are
    not in different batches every time. The rows before that place are moved to the end, so that
    one batch may have the last and the first rows. Rows that do not fill a batch come last.
    """
    generator = np.random.default_rng(seed)
    rows = np.roll(rows, -int(generator.integers(size)))
    whole = len(rows) // size * size
    batches = rows[:whole].reshape(-1, size)
    return np.concatenate([batches[generator.permutation(len(batches))].ravel(), rows[whole:]])


def shares(
    rows: np.ndarray, cuts: np.ndarray, process: int, processes: int
) -> Iterator[np.ndarray]:
    """Yield the rows of each batch that one of several processes takes.

    All processes take equally many rows. If a batch cannot be divided, its last rows are left out.

    # Parameters

    rows : the rows of all batches, one batch after the other.
    cuts : the places in `rows` where batches begin, and the end of the last batch.
    process : the rank of the process, from 0 on.
    processes : the number of processes.
    """
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        share = (end - begin) // processes
        start = begin + process * share
        yield rows[start : start + share]


def row_type(count: int) -> np.dtype:
    """Return the narrower of int32 and int64 that can number `count` rows."""
    return np.dtype(np.int32 if count <= np.iinfo(np.int32).max else np.int64)


def rows_where(chosen: Chosen, lengths: np.ndarray) -> np.ndarray:
    """Return the rows, in order, of the documents that are chosen by their lengths.

    # Parameters

    chosen : a function that takes a part of `lengths` and returns a mask of the same shape.
    lengths : the length in tokens of every document.
    """
    rows = np.empty(count_where(chosen, lengths), dtype=row_type(len(lengths)))
    filled = 0
    for begin, part in _parts(lengths):
        found = np.flatnonzero(chosen(part))
        rows[filled : filled + len(found)] = found + begin
        filled += len(found)
    return rows


def count_where(chosen: Chosen, lengths: np.ndarray) -> int:
    """Return the number of documents that are chosen by their lengths; see `rows_where`."""
    return sum(int(np.count_nonzero(chosen(part))) for _, part in _parts(lengths))


def _parts(lengths: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the parts of a long array and where they begin, so that masks of it stay small."""
    for begin in range(0, len(lengths), _AT_ONCE):
        yield begin, np.asarray(lengths[begin : begin + _AT_ONCE])
