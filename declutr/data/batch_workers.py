"""The sampler, the dataset and the initialisation of the workers of the loader "declutr"."""

import os
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from allennlp.data import Vocabulary
from allennlp.data.data_loaders.data_collator import allennlp_collate
from allennlp.data.data_loaders.data_loader import TensorDict
from torch.utils.data import Dataset, Sampler, get_worker_info

from declutr.data.collation import PackedBatch
from declutr.data.instance_rows import InstanceRows
from declutr.data.row_reader import RowReader


class EpochBatches(Sampler):
    """A sampler that yields `(epoch, rows)` for each batch, all that a worker needs to know.

    It holds no reference to the loader. If it did, the two would form a reference cycle, the
    workers would not be told when the loader goes, and torch would wait five seconds for each.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._batches: Iterator[np.ndarray] = iter(())

    def start(self, epoch: int, batches: Iterator[np.ndarray]) -> None:
        """Set the epoch and the batches of the next iteration.

        # Parameters

        epoch : the epoch that the rows are drawn for.
        batches : the row numbers of each batch, 1-D.
        """
        self._epoch, self._batches = epoch, batches

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        epoch = self._epoch  # Keep it: another iteration may begin before this one ends.
        for rows in self._batches:
            yield epoch, rows


class Batches(Dataset):
    """A dataset of batches by `(epoch, rows)`, packed if the reader can, else collated."""

    def __init__(
        self, reader: RowReader | InstanceRows, path: Any, vocab: Vocabulary | None
    ) -> None:
        self._reader, self._path, self._vocab = reader, path, vocab

    def __getitem__(self, key: tuple[int, np.ndarray]) -> PackedBatch | TensorDict:
        epoch, rows = key
        if isinstance(self._reader, RowReader) and self._reader.packs:
            return self._reader.packed(self._path, rows, epoch)
        instances = [self._reader.instance(self._path, row, epoch) for row in rows.tolist()]
        for instance in instances:
            self._reader.apply_token_indexers(instance)
            if self._vocab is not None:
                instance.index_fields(self._vocab)
        batch = allennlp_collate(instances)
        if get_worker_info() is None:
            return batch
        from declutr.bridge.data_workers import Pickled  # needed for instances of any fields only

        # torch pickles in a thread, which prints an error while training waits without end.
        return cast(TensorDict, Pickled(batch))


def as_it_is(batch: Any) -> Any:
    """Return the batch unchanged, as the `collate_fn` of batches that are already collated."""
    return batch


def one_thread(worker_id: int) -> None:
    """Restrict a worker to one thread.

    Workers copy small arrays or tokenise a few texts; further threads would take cores from
    training.
    """
    torch.set_num_threads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
