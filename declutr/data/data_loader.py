"""The DataLoader "declutr", whose epochs do not depend on the number of workers or processes."""

import logging
import warnings
import weakref
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Optional, Union

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.common.util import int_to_device
from allennlp.data import DataLoader, Instance, Vocabulary
from allennlp.data.data_loaders.data_loader import TensorDict
from torch.utils.data import DataLoader as TorchDataLoader

from declutr.bridge.additions import draws_anew
from declutr.corpus.documents import SourceError
from declutr.data.batch_workers import Batches, EpochBatches, as_it_is, one_thread
from declutr.data.collation import PackedBatch, moved
from declutr.data.instance_rows import InstanceRows
from declutr.data.random_subset import RandomSubset
from declutr.data.row_reader import RowReader
from declutr.sampling.document_selection import shares, shuffled, shuffled_batches
from declutr.sampling.token_budget import BudgetBatches
from declutr.system import raised_as
from declutr.system.distributed import process_rank, world_size

logger = logging.getLogger(__name__)


@DataLoader.register("declutr")
@dataclass(eq=False, repr=False)
class DeCLUTRDataLoader(DataLoader):
    """A loader whose batches are the same for any number of workers and processes.

    The documents of an epoch are put in an order that depends on (seed, epoch) alone and cut into
    global batches; process r of W takes the r-th part of each. So W processes with `batch_size` B
    see, batch by batch, what one process sees with W * B, and workers only fetch the rows that they
    are given. The length of an epoch is known before it begins, which schedulers need.

    Exactly one of `batch_size` and `max_tokens` must be given.

    # Parameters

    reader, data_path : come from `dataset_reader` and `train_data_path`. The instances of a reader
        that is not of this package are read once and kept in memory.
    subset : a random part of the rows to take, such as `{"size": 10000}`; by default all.
    batch_size : documents per batch and process.
    max_tokens : the average number of tokens per batch and process, instead of `batch_size`. The
        number of documents per batch then varies, and batches of uneven documents cost about the
        same. `declutr.sampling.token_budget` says what a document counts (`ExpectedTokens`) and how
        batches are cut (`BudgetBatches`): every epoch has the same number, and none ends with a
        smaller one. W processes see what one with W times `max_tokens` sees, but batches are cut
        at multiples of W documents.
    shuffle : whether every epoch has a new order.
    consecutive : whether the documents (sentences) of a batch follow each other in the corpus, as
        the objective `quick_thoughts` needs. `shuffle` then orders batches, not documents, and cuts
        them elsewhere in every epoch; one may hold the corpus's end and beginning. With
        `batch_size` only, and no `subset`.
    drop_last : whether to leave out the documents that do not fill a last batch, as training wants:
        a contrastive loss depends on the batch size. Without it (and with `max_tokens`), W
        processes still leave out up to W - 1 documents at the end, because each must hold equally
        many.
    num_workers : processes that draw and collate; 0 does it in the training process.
    start_method : how workers are started: `"fork"`, `"spawn"` or `"forkserver"`.
    resample : whether to draw new spans (and a new order) in every epoch. False repeats those of
        epoch 0, as validation wants.
    seed : the seed of the order of documents.
    cuda_device, quiet : as in AllenNLP.

    # Raises

    `ConfigurationError` : if both or neither of `batch_size` and `max_tokens` are given, the latter
        for a reader of another package, if settings contradict each other, if there are fewer
        documents than one batch (or `subset`) needs, or if two documents exceed `max_tokens`.
    """

    reader: Any  # A `RowReader`, or `InstanceRows` of a reader of another package.
    data_path: Any
    _: KW_ONLY
    batch_size: Optional[int] = None
    shuffle: bool = False
    drop_last: bool = False
    num_workers: int = 0
    start_method: str = "fork"
    resample: bool = True
    seed: int = 13370
    cuda_device: Optional[Union[int, str, torch.device]] = None
    quiet: bool = False
    max_tokens: Optional[int] = None
    consecutive: bool = False
    subset: Optional[RandomSubset] = None

    def __post_init__(self) -> None:
        if not isinstance(self.reader, RowReader):
            if self.max_tokens is not None:
                raise ConfigurationError(
                    "max_tokens needs a dataset reader of this package, which counts tokens first; "
                    f"got {type(self.reader).__name__}. Set batch_size instead."
                )
            inside = not hasattr(self.reader, "draws_anew")
            if self.resample and inside and draws_anew(self.reader):
                warnings.warn(
                    f"The reader {type(self.reader).__name__} reads by one that draws anew in "
                    "every epoch, but this data loader keeps its instances, so spans are drawn "
                    "once. Take AllenNLP's loader (no type), with max_instances_in_memory.",
                    stacklevel=3,  # the code that builds the loader
                )
            self.reader = InstanceRows(self.reader)
        if (self.batch_size is None) == (self.max_tokens is None):
            raise ConfigurationError(
                f"Got batch_size {self.batch_size} and max_tokens {self.max_tokens}; expected one "
                "of them. Set batch_size for batches of equally many documents, or max_tokens for "
                "batches of about equally many tokens (and the other to null)."
            )
        limit = "batch_size" if self.max_tokens is None else "max_tokens"
        size = getattr(self, limit)
        if size < 1 or self.num_workers < 0:
            raise ConfigurationError(
                f"{limit} must be at least 1 and num_workers at least 0, got {size} and "
                f"{self.num_workers}."
            )
        if self.consecutive and (self.max_tokens is not None or self.subset is not None):
            told = "consecutive is for batches of equally many documents that follow each other"
            raise ConfigurationError(f"{told}: set batch_size, and max_tokens and subset to null.")
        self._vocab: Vocabulary | None = None
        device = self.cuda_device
        if device is not None:  # the number -1 is the CPU
            device = int_to_device(device) if isinstance(device, int) else torch.device(device)
        self._device = device
        self._epoch = -1
        self._resume_at = (0, 0)
        self._loader: TorchDataLoader | None = None
        self._sampler = EpochBatches()
        self._budget: tuple[tuple[int, int, bool], BudgetBatches] | None = None

    @property
    def documents(self) -> np.ndarray:
        """The rows of the corpus that this loader draws from."""
        with raised_as(ConfigurationError, SourceError):
            rows = self.reader.documents(self.data_path)
        return rows if self.subset is None else self.subset.of(rows, str(self.data_path))

    def __len__(self) -> int:
        """Return the number of batches per epoch, which is the same in every process."""
        if self.max_tokens is not None:
            return len(self._budget_batches())
        total, together = len(self.documents), self._together
        batches = total // together
        if not self.drop_last and total % together >= world_size():
            batches += 1
        if not batches:
            raise ConfigurationError(
                f"{self.data_path} gives {total} document(s), but a batch needs {together} "
                f"(batch_size {self.batch_size} in {world_size()} process(es)). Lower batch_size "
                "(-o '{\"data_loader.batch_size\": ...}'), or add documents."
            )
        return batches

    @property
    def _together(self) -> int:
        """The number of documents in one batch of all processes together."""
        assert self.batch_size is not None
        return self.batch_size * world_size()

    def _budget_batches(self) -> BudgetBatches:
        documents, processes = self.documents, world_size()
        # Cutting batches looks at every document, so the result is kept. The number of processes is
        # part of the key because the process group may be started after the first call.
        settings = len(documents), processes, self.reader.sample_spans
        if self._budget is None or self._budget[0] != settings:
            assert self.max_tokens is not None
            lengths = self.reader.corpus(self.data_path).num_tokens
            try:
                expected = self.reader.expected_tokens()
                batches = BudgetBatches(expected, lengths, documents, self.max_tokens, processes)
            except ValueError as error:
                raise ConfigurationError(f"{self.data_path}: {error}") from error
            self._budget = settings, batches
        return self._budget[1]

    def order(self, epoch: int) -> np.ndarray:
        """Return the rows of one epoch in the order in which all processes together read them."""
        rows = self.documents
        if not self.shuffle:
            return rows
        if not self.consecutive:
            return shuffled(rows, (self.seed, epoch))
        return shuffled_batches(rows, self._together, (self.seed, epoch))

    def batches(self, epoch: int, first: int = 0) -> Iterator[np.ndarray]:
        """Yield the rows of each batch of an epoch that belong to this process.

        # Parameters

        epoch : the epoch, from 0.
        first : the number of the first batch, from 0.
        """
        rows = self.order(epoch)
        if self.max_tokens is not None:
            cuts = self._budget_batches().cuts(rows)
        else:
            cuts = np.minimum(np.arange(len(self) + 1) * self._together, len(rows))
        return shares(rows, cuts[first:], process_rank(), world_size())

    def resume_at(self, epoch: int, batch: int) -> None:
        """Yield `{}` for every batch before this one, without reading anything for it.

        AllenNLP's trainer iterates over all batches that it did before a checkpoint; after this
        call, that takes no time. Call it before training begins.
        """
        self._resume_at = (epoch, batch)

    def begin_at(self, epoch: int) -> None:
        """Make the next iteration that of this epoch."""
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
            yield batch if self._device is None else moved(batch, self._device)

    def _fetch(self, epoch: int, first: int) -> Iterator[TensorDict]:
        if self._loader is None:
            self._loader = TorchDataLoader(
                Batches(self.reader, self.data_path, self._vocab),
                sampler=self._sampler,
                batch_size=None,  # The items of the sampler are whole batches.
                collate_fn=as_it_is,
                num_workers=self.num_workers,
                multiprocessing_context=self.start_method if self.num_workers else None,
                persistent_workers=self.num_workers > 0,
                worker_init_fn=one_thread,
                pin_memory=self._device is not None and self._device.type == "cuda",
                # Without its own generator, torch would draw from the global one.
                generator=torch.Generator(),
            )
            # torch tells workers to end through a queue. In a reference cycle, such as that of a
            # trainer, garbage collection closes this queue first, and torch then waits for each
            # worker for five seconds. What is held here is not garbage before this loader is. So
            # nothing in it may refer to this loader: neither would ever be freed.
            weakref.finalize(self, [self._loader].clear)
        self._sampler.start(epoch, self.batches(epoch, first))
        for batch in self._loader:
            yield batch.tensors() if isinstance(batch, PackedBatch) else batch  # type: ignore[misc]

    def iter_instances(self) -> Iterator[Instance]:
        """Yield an instance with the tokens of each row, for building a vocabulary."""
        ours = isinstance(self.reader, RowReader)
        make = self.reader.vocabulary_instance if ours else self.reader.instance
        for row in self.documents:
            instance = make(self.data_path, int(row))
            self.reader.apply_token_indexers(instance)
            yield instance

    def index_with(self, vocab: Vocabulary) -> None:
        self._vocab = vocab

    def set_target_device(self, device: torch.device) -> None:
        self._device = device
