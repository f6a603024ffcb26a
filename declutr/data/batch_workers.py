"""What the workers of the loader "declutr" are told, and what they do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from allennlp.data import Vocabulary
from allennlp.data.data_loaders.data_collator import allennlp_collate
from allennlp.data.data_loaders.data_loader import TensorDict
from torch.utils.data import Dataset, Sampler

from declutr.data.collation import PackedBatch
from declutr.data.row_reader import RowReader


class EpochBatches(Sampler):
    """What a worker needs to know of each batch, and all it needs: `(epoch, rows)`.

    Holds no reference to the loader: workers of a loader that is part of a cycle are not told when
    it goes, and torch waits five seconds for each.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._batches: Iterator[np.ndarray] = iter(())

    def start(self, epoch: int, batches: Iterator[np.ndarray]) -> None:
        self._epoch, self._batches = epoch, batches

    def __iter__(self) -> Iterator[tuple[int, np.ndarray]]:
        epoch = self._epoch  # another iteration may begin before this one ends
        for rows in self._batches:
            yield epoch, rows


class Batches(Dataset):
    """Batches by `(epoch, rows)`: packed where the reader can do it, else collated instances."""

    def __init__(self, reader: RowReader, path: Any, vocab: Vocabulary | None) -> None:
        self._reader, self._path, self._vocab = reader, path, vocab

    def __getitem__(self, key: tuple[int, np.ndarray]) -> PackedBatch | TensorDict:
        epoch, rows = key
        if self._reader.packs:
            return self._reader.packed(self._path, rows, epoch)
        instances = [self._reader.instance(self._path, row, epoch) for row in rows.tolist()]
        for instance in instances:
            self._reader.apply_token_indexers(instance)
            if self._vocab is not None:
                instance.index_fields(self._vocab)
        return allennlp_collate(instances)


def as_it_is(batch: Any) -> Any:
    return batch


def one_thread(worker_id: int) -> None:
    # Workers copy small arrays, or tokenise a few texts; threads of their own would take cores from
    # training.
    torch.set_num_threads(1)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
