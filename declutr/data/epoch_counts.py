"""Which epoch a reader is in, for the workers of AllenNLP's own loaders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from allennlp.data.dataset_readers.dataset_reader import WorkerInfo

_MAX_WORKERS = 256


class EpochCounts:
    """Counts the epochs that each worker began, and those that it read rows of.

    AllenNLP's own loader starts its workers anew every epoch, with a copy of the reader, so the
    counts lie in shared memory: one place for each worker of each number of workers, as loaders
    that share a reader (training, validation) may have different numbers.
    """

    def __init__(self) -> None:
        places = 1 + _MAX_WORKERS * (_MAX_WORKERS + 1) // 2
        counts = torch.zeros(2, places, dtype=torch.int64).share_memory_()
        self._begun, self._read = counts

    def begin(self, worker: WorkerInfo | None) -> int:
        """The epoch that this worker begins, from 0; `None` is a process without workers."""
        return _next(self._begun, worker)

    def read(self, worker: WorkerInfo | None) -> int:
        """The epoch whose rows it reads; the next call is of the next."""
        return _next(self._read, worker)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Forget what is counted inside the block, by all workers, which are through by then."""
        counts = self._begun, self._read
        before = [count.clone() for count in counts]
        try:
            yield
        finally:
            for count, value in zip(counts, before, strict=True):
                count.copy_(value)


def _next(epochs: torch.Tensor, worker: WorkerInfo | None) -> int:
    place = 0
    if worker is not None:
        place = 1 + worker.num_workers * (worker.num_workers - 1) // 2 + worker.id
    epoch = int(epochs[place])
    epochs[place] += 1
    return epoch
