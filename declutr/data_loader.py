"""The DataLoader "declutr": whole epochs in a known order, whatever reads them."""

import logging
from collections.abc import Iterator
from typing import Any, Optional, Union

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, DatasetReader, Instance, Vocabulary
from allennlp.data.data_loaders.data_collator import allennlp_collate
from allennlp.data.data_loaders.data_loader import TensorDict
from allennlp.nn.util import move_to_device
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset

from declutr.dataset_reader import DeCLUTRDatasetReader
from declutr.distributed import process_rank, world_size
from declutr.sources import SourceError

logger = logging.getLogger(__name__)


@DataLoader.register("declutr")
class DeCLUTRDataLoader(DataLoader):
    """Batches of a "declutr" reader, the same for any number of workers and processes.

    The documents of an epoch are put in an order that depends on (seed, epoch) alone and cut into
    global batches; process r of W takes the r-th part of each. So W processes with `batch_size` B
    see, batch by batch, what one process sees with W * B, and workers only fetch what they are
    told. The length of an epoch is known before it begins, which schedulers need.

    # Parameters

    reader, data_path : come from `dataset_reader` and `train_data_path`.
    batch_size : documents a batch and process.
    shuffle : a new order every epoch.
    drop_last : leave out the documents that do not fill a last batch. Training wants this: a
        contrastive loss depends on the batch size. Without it, W processes still leave out up to
        W - 1 documents at the end, as they must hold equally many.
    num_workers : processes that draw and collate; 0 does it in this one.
    start_method : of the workers, `"fork"`, `"spawn"` or `"forkserver"`.
    resample : draw fresh spans (and a new order) every epoch. False gives those of epoch 0 in every
        one, as validation wants.
    seed : of the order of documents.
    cuda_device, quiet : as in AllenNLP.

    # Raises

    `ConfigurationError` : another kind of reader, or fewer documents than one batch needs.
    """

    def __init__(
        self,
        reader: DatasetReader,
        data_path: Any,
        *,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        num_workers: int = 0,
        start_method: str = "fork",
        resample: bool = True,
        seed: int = 13370,
        cuda_device: Optional[Union[int, str, torch.device]] = None,
        quiet: bool = False,
    ) -> None:
        if not isinstance(reader, DeCLUTRDatasetReader):
            raise ConfigurationError(
                f'The data loader "declutr" needs the dataset reader "declutr", got '
                f'{type(reader).__name__}. Use the data loader "multiprocess" with it.'
            )
        if batch_size < 1 or num_workers < 0:
            raise ConfigurationError(
                f"batch_size must be at least 1 and num_workers at least 0, got {batch_size} and "
                f"{num_workers}."
            )
        self.reader = reader
        self.data_path = data_path
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.resample = resample
        self.seed = seed
        self.quiet = quiet
        self._start_method = start_method
        self._vocab: Vocabulary | None = None
        self._device = None if cuda_device is None else torch.device(cuda_device)
        self._epoch = -1
        self._resume_at = (0, 0)
        self._loader: TorchDataLoader | None = None

    # ------------------------------------------------------------------------------- the order

    @property
    def documents(self) -> np.ndarray:
        """The rows of the corpus that this loader draws from."""
        try:
            return self.reader.documents(self.data_path)
        except SourceError as error:
            raise ConfigurationError(str(error)) from error

    def __len__(self) -> int:
        """Batches an epoch, the same in every process."""
        total, together = len(self.documents), self.batch_size * world_size()
        batches = total // together
        if not self.drop_last and total % together >= world_size():
            batches += 1
        if not batches:
            raise ConfigurationError(
                f"{self.data_path} gives {total} document(s), but a batch needs {together} "
                f"(batch_size {self.batch_size} in {world_size()} process(es)). Lower batch_size, "
                "or add documents."
            )
        return batches

    def order(self, epoch: int) -> np.ndarray:
        """The rows of one epoch, in the order in which all processes together read them."""
        rows = self.documents
        if self.shuffle:
            rows = rows[np.random.default_rng((self.seed, epoch)).permutation(len(rows))]
        return rows

    def batches(self, epoch: int, first: int = 0) -> Iterator[np.ndarray]:
        """This process's rows of each batch of an epoch, from batch number `first` on."""
        return _own_shares(self.order(epoch), range(first, len(self)), self.batch_size)

    # -------------------------------------------------------------------------------- iteration

    def resume_at(self, epoch: int, batch: int) -> None:
        """Skip what came before this batch: it is yielded as `{}`, and nothing is read for it.

        AllenNLP's trainer walks through all it has done before a checkpoint; with this, that takes
        no time. Called before training begins.
        """
        self._resume_at = (epoch, batch)

    def begin_at(self, epoch: int) -> None:
        """Count the next iteration as this epoch."""
        self._epoch = epoch - 1

    def __iter__(self) -> Iterator[TensorDict]:
        if self._vocab is None:
            raise ConfigurationError("Call index_with(vocab) before iterating over batches.")
        self._epoch += 1
        epoch, (resume_epoch, resume_batch) = self._epoch, self._resume_at
        skipped = len(self) if epoch < resume_epoch else 0
        if epoch == resume_epoch:
            skipped = min(resume_batch, len(self))
        for _ in range(skipped):
            yield {}
        if skipped == len(self):
            return
        for batch in self._fetch(epoch if self.resample else 0, skipped):
            yield batch if self._device is None else move_to_device(batch, self._device)

    def _fetch(self, epoch: int, first: int) -> Iterator[TensorDict]:
        if self._loader is None:
            self._loader = TorchDataLoader(
                _Instances(self.reader, self.data_path, self._vocab),
                batch_sampler=_EpochBatches(),
                collate_fn=allennlp_collate,
                num_workers=self.num_workers,
                multiprocessing_context=self._start_method if self.num_workers else None,
                persistent_workers=self.num_workers > 0,
                worker_init_fn=_one_thread,
                pin_memory=self._device is not None and self._device.type == "cuda",
                # Without one of its own, torch would draw from the global generator.
                generator=torch.Generator(),
            )
        self._loader.batch_sampler.start(epoch, self.batches(epoch, first))  # type: ignore[union-attr]
        yield from self._loader

    def iter_instances(self) -> Iterator[Instance]:
        """The instances of the first epoch, for building a vocabulary."""
        for row in self.documents:
            instance = self.reader.instance(self.data_path, int(row))
            self.reader.apply_token_indexers(instance)
            yield instance

    def index_with(self, vocab: Vocabulary) -> None:
        self._vocab = vocab

    def set_target_device(self, device: torch.device) -> None:
        self._device = device


def _own_shares(rows: np.ndarray, numbers: range, batch_size: int) -> Iterator[np.ndarray]:
    """This process's part of each of the numbered global batches."""
    together = batch_size * world_size()
    for number in numbers:
        part = rows[number * together : (number + 1) * together]
        share = len(part) // world_size()  # fewer than batch_size in a last batch only
        yield part[process_rank() * share : (process_rank() + 1) * share]


class _EpochBatches:
    """Keys `(epoch, row)` of each batch: what a worker needs to know, and all it needs.

    Holds no reference to the loader: workers of a loader that is part of a cycle are not told when
    it goes, and torch waits five seconds for each.
    """

    def __init__(self) -> None:
        self._epoch = 0
        self._batches: Iterator[np.ndarray] = iter(())

    def start(self, epoch: int, batches: Iterator[np.ndarray]) -> None:
        self._epoch, self._batches = epoch, batches

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        epoch = self._epoch  # another iteration may begin before this one ends
        for rows in self._batches:
            yield [(epoch, int(row)) for row in rows]


class _Instances(Dataset):
    """Indexed instances by `(epoch, row)`."""

    def __init__(self, reader: DeCLUTRDatasetReader, path: Any, vocab: Vocabulary | None) -> None:
        self._reader, self._path, self._vocab = reader, path, vocab

    def __getitem__(self, key: tuple[int, int]) -> Instance:
        epoch, row = key
        instance = self._reader.instance(self._path, row, epoch)
        self._reader.apply_token_indexers(instance)
        if self._vocab is not None:
            instance.index_fields(self._vocab)
        return instance


def _one_thread(worker_id: int) -> None:
    # Workers only copy small arrays; threads of their own would take cores from training.
    torch.set_num_threads(1)
