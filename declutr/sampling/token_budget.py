"""Batches by tokens: what a document counts, and where an order of documents is cut.

All counting is in whole 64ths of a token, so that a sum does not depend on the order of its terms:
every epoch, process and machine finds the same number of batches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from declutr.sampling.spans import SpanSampler

UNITS = 64  # of one token
_PLACES = (np.arange(2048) + 0.5) / 2048  # at which a beta law is looked at
_AT_ONCE = 1 << 20  # documents looked at together


class ExpectedTokens:
    """How many tokens a document gives a batch on average, special tokens included.

    For sampled spans this is the mean over the laws of their lengths (right to about a tenth of a
    token a span); adjacent positives count as if there were always room for the longest. A whole
    text counts as it is. Padding does not count.

    # Parameters

    sampler : `None` for whole texts.
    limit : tokens of a span or text that the transformer takes, special ones left out; `None` for
        all.
    num_special_tokens : special tokens added to each span or text.
    texts : whole texts a document, each counted as long as the document.
    """

    def __init__(
        self,
        sampler: SpanSampler | None,
        limit: int | None,
        num_special_tokens: int,
        texts: int = 1,
    ) -> None:
        self._limit = limit
        self._special = num_special_tokens
        self._texts = texts
        self._per_longest: np.ndarray | None = None
        if sampler is not None:
            self._divisor = 2 * sampler.num_anchors
            self._per_longest = self._table(sampler)

    def units(self, lengths: np.ndarray) -> np.ndarray:
        """64ths of a token for documents of these lengths: int64, of the same shape."""
        if self._per_longest is not None:
            longest = np.minimum(lengths // self._divisor, len(self._per_longest) - 1)
            return self._per_longest[longest]
        # Where there are no special tokens a blank text is one token all the same.
        tokens = np.maximum(self._taken(np.asarray(lengths, dtype=np.int64)), 1)
        return self._texts * tokens * UNITS

    def _table(self, sampler: SpanSampler) -> np.ndarray:
        """For each length that the longest span of a document may have; that decides them all."""
        anchor_law, positive_law = (
            _beta_law(*parameters) for parameters in (sampler.anchor_beta, sampler.positive_beta)
        )
        subsuming = sampler.strategy == "subsuming"
        floors = _mean_floors(positive_law, sampler.max_span_len) if subsuming else None
        table = np.zeros(sampler.max_span_len + 1)
        for longest in range(1, sampler.max_span_len + 1):
            shortest = sampler.shortest_beside(longest)
            anchors = _lengths(shortest, longest)
            anchor = anchor_law @ self._taken(anchors)
            if floors is not None:  # no longer than its anchor
                positive = anchor_law @ self._taken(shortest + floors[anchors - shortest])
            else:
                positive = positive_law @ self._taken(anchors)
            table[longest] = sampler.num_anchors * (anchor + sampler.num_positives * positive)
        return np.rint(table * UNITS).astype(np.int64)

    def _taken(self, lengths: np.ndarray) -> np.ndarray:
        taken = lengths if self._limit is None else np.minimum(lengths, self._limit)
        return taken + self._special


def _beta_law(a: float, b: float) -> np.ndarray:
    """The weights of `_PLACES` under Beta(a, b)."""
    logarithms = (a - 1) * np.log(_PLACES) + (b - 1) * np.log1p(-_PLACES)
    weights = np.exp(logarithms - logarithms.max())
    return weights / weights.sum()


def _lengths(shortest: int, longest: int) -> np.ndarray:
    """The span lengths that the sampler makes of `_PLACES`."""
    return shortest + (_PLACES * (longest - shortest)).astype(np.int64)


def _mean_floors(law: np.ndarray, most: int) -> np.ndarray:
    """The mean of `floor(B * r)` for each r of 0 to `most`."""
    return np.array([law @ _lengths(0, r) for r in range(most + 1)])


class BudgetBatches:
    """Cuts every order of some documents into the same number of batches of about equal tokens.

    A schedule asks for the number of batches once, before the first epoch, but batches filled one
    after another to the brim would be as many as the order of the epoch has it. So the number comes
    from the sum over all documents, which no order changes: as many batches as are needed for them
    to hold `budget` tokens or fewer on average. The order of each epoch is then cut into that many
    parts, each document going where its middle lies on the scale of tokens. A batch so differs from
    the average, which is at most `budget`, by less than one document for each of the processes that
    share it. (Its padding, and the spans that are drawn, are not known here.)

    With W processes cuts lie at multiples of W documents, so that all hold equally many, and up to
    W - 1 documents at the end of the order are left out. Every batch has two documents a process
    at least: one alone would have nothing to be contrasted with.

    # Parameters

    expected : what a document counts.
    lengths : tokens of every document of the corpus.
    rows : the documents that are used.
    max_tokens : the budget a process.
    processes : W.

    # Raises

    `ValueError` : `max_tokens` does not hold two of the largest documents, or there are fewer than
        two documents a process.
    """

    def __init__(
        self,
        expected: ExpectedTokens,
        lengths: np.ndarray,
        rows: np.ndarray,
        max_tokens: int,
        processes: int = 1,
    ) -> None:
        self._expected, self._lengths, self._processes = expected, lengths, processes
        total = largest = 0
        for units in self._units(rows):
            total += int(units.sum())
            largest = max(largest, int(units.max()))
        groups = len(rows) // processes
        if groups < 2:
            raise ValueError(
                f"{len(rows)} document(s) are not enough for a batch: each of {processes} "
                "process(es) needs two. Add documents."
            )
        if 2 * largest > max_tokens * UNITS:
            raise ValueError(
                f"max_tokens is {max_tokens}, but a batch holds two documents at least, and two of "
                f"the largest give {-(-2 * largest // UNITS)} tokens (special ones included). "
                "Raise max_tokens to that, or lower max_span_len, num_anchors or num_positives."
            )
        budget = max_tokens * UNITS * processes
        self._total = total
        self._count = max(1, min(-(-total // budget), groups // 2))

    def __len__(self) -> int:
        return self._count

    def cuts(self, order: np.ndarray) -> np.ndarray:
        """Where the batches of an order of all `rows` begin, plus the end of the last.

        `(len(self) + 1,)`, multiples of the number of processes.
        """
        count, each = self._count, self._processes
        groups = len(order) // each
        found = np.zeros(count + 1, dtype=np.int64)
        found[count] = groups
        # Batch k begins with the first group whose middle lies beyond k / count of the total.
        whole, rest = divmod(2 * self._total, count)
        numbers = np.arange(count + 1)
        targets = whole * numbers + -(-rest * numbers // count)  # 2 * total * k / count, rounded up
        before, position, batch = 0, 0, 1
        for units in self._units(order[: groups * each]):
            grouped = units.reshape(-1, each).sum(axis=1)
            ends = before + np.cumsum(grouped)
            doubled_middles = 2 * ends - grouped
            reached = int(np.searchsorted(targets, doubled_middles[-1], side="right"))
            until = min(max(reached, batch), count)
            found[batch:until] = position + np.searchsorted(
                doubled_middles, targets[batch:until], side="left"
            )
            batch, before, position = until, int(ends[-1]), position + len(grouped)
        found[batch:count] = groups
        # Two groups a batch: later beginnings first, then earlier ones where the end is near.
        steps = 2 * numbers
        found[:count] = np.maximum.accumulate(found[:count] - steps[:count]) + steps[:count]
        found = np.minimum(found, groups - steps[::-1])
        return found * each

    def _units(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        # In parts of whole groups.
        at_once = _AT_ONCE // self._processes * self._processes
        for begin in range(0, len(rows), at_once):
            yield self._expected.units(self._lengths[rows[begin : begin + at_once]])
