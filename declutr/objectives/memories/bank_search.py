"""Search for the nearest rows of a large matrix, either exact or approximate with faiss."""

from collections.abc import Callable
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.numerics import full_precision, unit
from declutr.system.vectors import PER_CENTRE, least_effort, loaded_faiss, number_of_lists

BLOCK = 1 << 22
"""The number of elements in a block of cosines, or of rows copied for them: 16 MB in float32."""

CACHED = 1 << 20
"""The number of elements in the rows that a CPU multiplies at once: 4 MB in float32.

They fit into its caches. The product is then twice as fast as that of a whole block, and three
times as fast where rows have to be copied for it.
"""

DEVICE_BLOCK = 1 << 25
"""The number of elements in a block on a GPU: 128 MB in float32.

It is larger than `BLOCK` because few large products keep a GPU busier than many small ones.
"""


@full_precision
def nearest_rows(
    queries: Tensor,
    lengths: Tensor,
    block: Callable[[int, int], Tensor],
    usable: Callable[[int, int], Tensor],
    k: int,
    at_once: int,
    numbers: int = BLOCK,
) -> tuple[Tensor, Tensor]:
    """Find the k rows with the largest cosines, in memory that does not depend on their number.

    On a GPU `numbers` should be `DEVICE_BLOCK`. A product of 64 queries with 400,000 rows of width
    768 reads 1.2 GB there, which takes about a millisecond: an index would be no faster, and would
    have to be built on the host.

    # Parameters

    queries : raw queries `(n, d)`.
    lengths : the lengths `(M,)` of the rows, above 0.
    block : a function of two numbers that returns the raw rows `(b, d)` from the first number up to
        the second, with the dtype and on the device of the queries.
    usable : a function of the same numbers that returns a mask, `(n, b)` or `(b,)`, of the rows
        that each query may find.
    k : the number of rows to find for each query.
    at_once : the largest number of rows to ask `block` for. On a CPU fewer are asked for if they
        would not fit into its caches.
    numbers : the number of cosines that are in memory at once.

    # Returns

    The numbers `(n, min(k, M))` of the rows found, the nearest first, and a mask of the same shape
    that is false where a query may find fewer rows.
    """
    n, count = queries.size(0), lengths.size(0)
    queries = unit(queries)
    best = queries.new_empty(n, 0)
    rows = torch.empty(n, 0, dtype=torch.long, device=queries.device)
    size = max(1, numbers // n)
    at_once = min(at_once, size)
    if queries.device.type == "cpu":
        at_once = min(at_once, max(1, CACHED // queries.size(1)))
    for start in range(0, count, size):
        stop = min(start + size, count)
        some = range(start, stop, at_once)
        products = [queries @ block(first, min(first + at_once, stop)).T for first in some]
        cosines = products[0] if len(products) == 1 else torch.cat(products, dim=1)  # (n, b)
        cosines.div_(lengths[start:stop]).masked_fill_(~usable(start, stop), -torch.inf)
        near, place = cosines.topk(min(k, stop - start), dim=1)
        if start == 0:
            best, rows = near, place
            continue
        best, rows = torch.cat([best, near], dim=1), torch.cat([rows, place + start], dim=1)
        best, order = best.topk(min(k, best.size(1)), dim=1)
        rows = rows.gather(1, order)
    return rows, best > -torch.inf


class InvertedLists:
    """An approximate faiss index of the rows of a matrix as they are when it is built.

    Each row is in the list of the nearest of some centres, as a code of one byte for each element
    (IVF, SQ8), which is a quarter of its size in float32. A search looks into a few lists. It finds
    candidates only, which the caller compares with the rows themselves.

    # Parameters

    numbers, lengths : the numbers `(m,)` of the rows to index, and their lengths `(m,)`.
    row : a function that takes numbers `(b,)` and returns raw rows `(b, d)`.
    seed : the seed of the samples that the index is trained on and that recall is measured on.

    # Raises

    `ConfigurationError` : if faiss is not installed.
    """

    TARGET = 0.95
    """The recall that `tune` aims at."""

    _SAMPLE = 64  # the number of queries that `tune` measures recall with

    def __init__(
        self, numbers: Tensor, lengths: Tensor, row: Callable[[Tensor], Tensor], seed: int = 0
    ) -> None:
        faiss = _faiss()
        self._numbers, self._row, self._lengths = numbers, row, lengths
        self._generator = torch.Generator().manual_seed(seed)
        count, width = len(numbers), row(numbers[:1]).size(1)
        lists = number_of_lists(count)
        flat, kind = faiss.IndexFlatIP(width), faiss.ScalarQuantizer.QT_8bit
        metric = faiss.METRIC_INNER_PRODUCT
        self._index: Any = faiss.IndexIVFScalarQuantizer(flat, width, lists, kind, metric)
        self._index.train(self._unit(self._drawn(lists * PER_CENTRE)))
        for some in numbers.split(max(1, BLOCK // width)):
            self._index.add_with_ids(self._unit(some), some.cpu().numpy())
        self.recall = 0.0

    def candidates(self, queries: Tensor, count: int) -> Tensor:
        """Find rows that are probably nearest to the queries.

        Where the number of lists that `tune` chose has too few rows, more lists are searched.

        # Parameters

        queries : raw queries `(n, d)`.
        count : the number of candidates for each query.

        # Returns

        The numbers `(n, count)` of rows, or -1 where a query has found all rows of the index.
        """
        vectors = unit(queries.detach()).cpu().float().numpy()
        tuned = lists = self._index.nprobe
        found = self._index.search(vectors, count)[1]
        try:
            while lists < self._index.nlist and (few := (found < 0).any(axis=1)).any():
                lists = self._index.nprobe = min(2 * lists, self._index.nlist)
                found[few] = self._index.search(vectors[few], count)[1]
        finally:
            self._index.nprobe = tuned
        return torch.from_numpy(found).to(queries.device)

    def tune(self, k: int, candidates: int) -> float:
        """Choose how many lists to search, by doubling the number until recall reaches `TARGET`.

        Recall is the share of the true k nearest rows that are among the candidates found. It is
        measured on rows drawn at random.

        # Parameters

        k : the number of true nearest rows of each drawn row.
        candidates : the number of candidates to find for each drawn row.

        # Returns

        The recall with that number of lists, which `recall` keeps.
        """
        chosen = self._drawn(self._SAMPLE)
        queries = self._row(chosen)
        truth, found = nearest_rows(
            queries,
            self._lengths,
            lambda start, stop: self._row(self._numbers[start:stop]),
            lambda start, stop: chosen.unsqueeze(1) != self._numbers[start:stop],
            k,
            max(1, BLOCK // queries.size(1)),
        )
        truth = self._numbers[truth]

        def recall(lists: int) -> float:
            self._index.nprobe = lists
            near = self.candidates(queries, candidates).to(truth.device)
            hit = (truth.unsqueeze(2) == near.unsqueeze(1)).any(dim=2) & found
            return float(hit.sum() / found.sum().clamp_min(1))

        _, self.recall = least_effort(recall, self._index.nlist, self.TARGET)
        return self.recall

    def _drawn(self, count: int) -> Tensor:
        order = torch.randperm(len(self._numbers), generator=self._generator)[:count]
        return self._numbers[order.to(self._numbers.device)]

    def _unit(self, numbers: Tensor) -> Any:
        return unit(self._row(numbers)).cpu().float().numpy()


def _faiss() -> Any:
    try:
        return loaded_faiss()
    except ImportError as error:
        raise ConfigurationError(
            'search "approximate" needs the package faiss-cpu, which is not installed: pip install '
            'faiss-cpu, or set search to "exact".'
        ) from error
