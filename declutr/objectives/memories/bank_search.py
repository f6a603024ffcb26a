"""Which rows of a large matrix are nearest to a few: exactly, or by faiss."""

from collections.abc import Callable
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.objectives.numerics import full_precision, unit
from declutr.system.vectors import PER_CENTRE, least_effort, loaded_faiss, number_of_lists

BLOCK = 1 << 22
"""Numbers of a block of cosines, or of rows that are copied for them: 16 MB in float32."""

CACHED = 1 << 20
"""Numbers of the rows that a CPU multiplies at once: 4 MB in float32, which its caches hold. The
product is then twice as fast as over a block, and three times where rows are copied for it."""

DEVICE_BLOCK = 1 << 25
"""As `BLOCK`, on a GPU: 128 MB in float32. Work of a few large pieces keeps it busy."""


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
    """Find the k rows of the largest cosines, in memory that does not grow with the number of rows.

    A GPU wants few and large pieces, of `DEVICE_BLOCK` numbers. Of 400,000 rows of width 768 a
    product with 64 queries reads 1.2 GB, which takes it about a millisecond: an index would be no
    faster, and has to be built on the host.

    # Parameters

    queries : raw `(n, d)`.
    lengths : of the rows `(M,)`, above 0.
    block : gives raw rows `(b, d)`, from one to another, as the queries are.
    usable : which of them each query may find: `(n, b)` or `(b,)`.
    at_once : how many rows to ask `block` for; a CPU takes no more than its caches hold.
    numbers : how many cosines to choose from at once.

    # Returns

    Numbers `(n, min(k, M))` of rows, the nearest first, and whether there was one.
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
    """An approximate index of faiss over the rows of a matrix as they are now.

    Rows are divided among the nearest of some centres and kept as codes of a byte for each number
    (IVF, SQ8), a quarter of what they take in float32; a search looks into a few lists. It gives
    candidates: who asks compares with the rows themselves.

    # Parameters

    numbers, lengths : `(m,)`, the rows to index, and how long they are.
    row : gives rows `(b, d)` by numbers `(b,)`, raw.
    seed : of the sample that recall is measured on.

    # Raises

    `ConfigurationError` : faiss is not installed.
    """

    TARGET = 0.95
    """The recall that `tune` looks for."""

    _SAMPLE = 64  # queries of `tune`

    def __init__(
        self, numbers: Tensor, lengths: Tensor, row: Callable[[Tensor], Tensor], seed: int = 0
    ) -> None:
        faiss = _faiss()
        self._numbers, self._row, self._lengths = numbers, row, lengths
        self._generator = torch.Generator().manual_seed(seed)
        count, width = len(numbers), row(numbers[:1]).size(1)
        lists = number_of_lists(count)
        self._index: Any = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(width),
            width,
            lists,
            faiss.ScalarQuantizer.QT_8bit,
            faiss.METRIC_INNER_PRODUCT,
        )
        self._index.train(self._unit(self._drawn(lists * PER_CENTRE)))
        for some in numbers.split(max(1, BLOCK // width)):
            self._index.add_with_ids(self._unit(some), some.cpu().numpy())
        self.recall = 0.0

    def candidates(self, queries: Tensor, count: int) -> Tensor:
        """Numbers `(n, count)` of rows that are near raw `queries` `(n, d)`; -1 where none is left:
        more lists are looked into where those of `tune` hold too few."""
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
        """Look into as few lists, doubling, as have `TARGET` of the true k nearest rows of rows
        drawn at random among `candidates`; the share it is, which is also `recall`."""
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
