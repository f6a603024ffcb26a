"""Batches of about equally many tokens, counted by what each document gives on average.

Tokens are counted in whole 64ths, so that a sum does not depend on the order of its terms: every
epoch, process and machine finds the same number of batches.
"""

from collections.abc import Iterator

import numpy as np

from declutr.sampling.spans import SpanSampler

UNITS = 64
"""The number of units in which one token is counted."""

_PLACES = (np.arange(2048) + 0.5) / 2048  # points at which beta densities are computed
_AT_ONCE = 1 << 20  # the number of documents that are counted at once


class ExpectedTokens:
    """The number of tokens that a document gives to a batch on average, special tokens included.

    For sampled spans this is the mean over the distributions of their lengths, accurate to about a
    tenth of a token for each span. Adjacent positives count as if the longest one always fitted. A
    whole text counts as long as it is. Padding does not count.

    # Parameters

    sampler : the sampler of spans, or `None` for whole texts.
    limit : the number of tokens of a span or text that the transformer takes, special tokens left
        out; `None` for no limit.
    num_special_tokens : the number of special tokens added to each span or text.
    texts : the number of whole texts for each document, each of which counts as long as the
        document.
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
        """Return the expected tokens of documents in 64ths of a token.

        # Parameters

        lengths : the lengths of documents in tokens.

        # Returns

        An int64 array of the shape of `lengths`.
        """
        if self._per_longest is not None:
            longest = np.minimum(lengths // self._divisor, len(self._per_longest) - 1)
            return self._per_longest[longest]
        # A blank text counts as one token even if no special tokens are added to it.
        tokens = np.maximum(self._taken(np.asarray(lengths, dtype=np.int64)), 1)
        return self._texts * tokens * UNITS

    def _table(self, sampler: SpanSampler) -> np.ndarray:
        """Return the units of a document, indexed by the length that its longest span may have.

        The lengths of all spans of a document depend on its length only through that limit.
        """
        shapes = sampler.anchor_beta, sampler.positive_beta
        anchor_law, positive_law = (_beta_law(*parameters) for parameters in shapes)
        subsuming = sampler.strategy == "subsuming"
        floors = _mean_floors(positive_law, sampler.max_span_len) if subsuming else None
        table = np.zeros(sampler.max_span_len + 1)
        for longest in range(1, sampler.max_span_len + 1):
            shortest = sampler.shortest_beside(longest)
            anchors = _lengths(shortest, longest)
            anchor = anchor_law @ self._taken(anchors)
            if floors is not None:  # A subsumed positive is no longer than its anchor.
                positive = anchor_law @ self._taken(shortest + floors[anchors - shortest])
            else:
                positive = positive_law @ self._taken(anchors)
            table[longest] = sampler.num_anchors * (anchor + sampler.num_positives * positive)
        return np.rint(table * UNITS).astype(np.int64)

    def _taken(self, lengths: np.ndarray) -> np.ndarray:
        taken = lengths if self._limit is None else np.minimum(lengths, self._limit)
        return taken + self._special


def _beta_law(a: float, b: float) -> np.ndarray:
    """Return the weights of `_PLACES` under the distribution Beta(a, b)."""
    logarithms = (a - 1) * np.log(_PLACES) + (b - 1) * np.log1p(-_PLACES)
    weights = np.exp(logarithms - logarithms.max())
    return weights / weights.sum()


def _lengths(shortest: int, longest: int) -> np.ndarray:
    """Return the span length that the sampler computes from each of `_PLACES`."""
    return shortest + (_PLACES * (longest - shortest)).astype(np.int64)


def _mean_floors(law: np.ndarray, most: int) -> np.ndarray:
    """Return the mean of `floor(B * r)` for each r from 0 to `most`, where B follows `law`."""
    return np.array([law @ _lengths(0, r) for r in range(most + 1)])


class BudgetBatches:
    """A rule that cuts any order of the documents into the same number of about equal batches.

    A learning rate schedule needs the number of batches once, before the first epoch. If batches
    were filled one after another, their number would depend on the order of the epoch. So the
    number comes from the sum over all documents: it is the smallest for which batches have at most
    the budget of tokens on average. The order of each epoch is then cut into that many batches, and
    each document goes into the batch in which its middle lies on the scale of tokens. A batch thus
    differs from the average, which is at most the budget, by less than one document for each
    process that shares it. Padding and the spans that will be drawn are not known here.

    With W processes, batches are cut at multiples of W documents so that all processes get equally
    many, and up to W - 1 documents at the end of an order are left out. Every batch has at least
    two documents for each process, because a single one would have no negatives.

    # Parameters

    expected : the number of tokens that a document counts as.
    lengths : the length in tokens of every document of the corpus.
    rows : the rows of the documents that are used.
    max_tokens : the budget of tokens of one process.
    processes : the number W of processes.

    # Raises

    `ValueError` : if two of the largest documents exceed `max_tokens`, or if there are fewer than
        two documents for each process.
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
        """Return the places in `order` where batches begin, and the end of the last batch.

        # Parameters

        order : all `rows` in any order.

        # Returns

        Places `(len(self) + 1,)`, all of them multiples of the number of processes.
        """
        count, each = self._count, self._processes
        groups = len(order) // each
        found = np.zeros(count + 1, dtype=np.int64)
        found[count] = groups
        # A group is one document for each process. Batch k begins with the first group whose middle
        # is at k / count of all tokens or beyond. Everything is doubled to stay in integers.
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
            ranks = np.searchsorted(doubled_middles, targets[batch:until], side="left")
            found[batch:until] = position + ranks
            batch, before, position = until, int(ends[-1]), position + len(grouped)
        found[batch:count] = groups
        # Every batch needs two groups: where batches are too close, later ones begin later, and
        # near the end of the order batches begin earlier.
        steps = 2 * numbers
        found[:count] = np.maximum.accumulate(found[:count] - steps[:count]) + steps[:count]
        found = np.minimum(found, groups - steps[::-1])
        return found * each

    def _units(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        # Each part has whole groups, so that `cuts` can add up the documents of a group.
        at_once = _AT_ONCE // self._processes * self._processes
        for begin in range(0, len(rows), at_once):
            yield self._expected.units(self._lengths[rows[begin : begin + at_once]])
