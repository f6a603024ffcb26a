"""The DataLoader "declutr": whole epochs in a known order, whatever reads them."""

import logging
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Optional, Union

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DataLoader, Instance, Vocabulary
from allennlp.data.data_loaders.data_loader import TensorDict
from torch.utils.data import DataLoader as TorchDataLoader

from declutr.corpus.documents import SourceError
from declutr.data.batch_workers import Batches, EpochBatches, as_it_is, one_thread
from declutr.data.collation import PackedBatch, moved
from declutr.data.row_reader import RowReader
from declutr.sampling.document_selection import shares, shuffled, shuffled_batches
from declutr.sampling.token_budget import BudgetBatches
from declutr.system.distributed import process_rank, world_size

logger = logging.getLogger(__name__)


@DataLoader.register("declutr")
@dataclass(eq=False, repr=False)
class DeCLUTRDataLoader(DataLoader):
    """Batches of a "declutr" reader, the same for any number of workers and processes.

    The documents of an epoch are put in an order that depends on (seed, epoch) alone and cut into
    global batches; process r of W takes the r-th part of each. So W processes with `batch_size` B
    see, batch by batch, what one process sees with W * B, and workers only fetch what they are
    told. The length of an epoch is known before it begins, which schedulers need.

    Exactly one of `batch_size` and `max_tokens` is to be given.

    # Parameters

    reader, data_path : come from `dataset_reader` and `train_data_path`.
    batch_size : documents a batch and process.
    max_tokens : tokens a batch and process instead, on average: documents a batch then vary, and
        batches of a corpus of uneven documents cost about the same. A document counts as many
        tokens as its spans have on average, special ones included (`ExpectedTokens`), a whole text
        as many as it has. Every epoch has the same number of batches, and none a last one that is
        not full: see `declutr.sampling.token_budget.BudgetBatches` for how they are cut. W
        processes see what one with `max_tokens` W times as large sees, but for cuts at multiples of
        W documents.
    shuffle : a new order every epoch.
    consecutive : batches of documents (sentences) that follow each other in the corpus; `shuffle`
        then puts batches in order, not documents, and cuts them elsewhere every epoch; one may hold
        the end of the corpus and its beginning. For `quick_thoughts`. With `batch_size` only.
    drop_last : leave out the documents that do not fill a last batch. Training wants this: a
        contrastive loss depends on the batch size. Without it (and with `max_tokens`), W processes
        still leave out up to W - 1 documents at the end, as they must hold equally many.
    num_workers : processes that draw and collate; 0 does it in this one.
    start_method : of the workers, `"fork"`, `"spawn"` or `"forkserver"`.
    resample : draw fresh spans (and a new order) every epoch. False gives those of epoch 0 in every
        one, as validation wants.
    seed : of the order of documents.
    cuda_device, quiet : as in AllenNLP.

    # Raises

    `ConfigurationError` : another kind of reader, both or neither of `batch_size` and `max_tokens`,
        fewer documents than one batch needs, or a `max_tokens` that two documents exceed.
    """

    reader: Any  # a `RowReader`, which is checked
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

    def __post_init__(self) -> None:
        if not isinstance(self.reader, RowReader):
            raise ConfigurationError(
                f'The data loader "declutr" needs the dataset reader "declutr", got '
                f'{type(self.reader).__name__}. Use the data loader "multiprocess" with it.'
            )
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
        if self.consecutive and self.batch_size is None:
            raise ConfigurationError(
                "consecutive is for batches of equally many documents: set batch_size, and "
                "max_tokens to null."
            )
        self._vocab: Vocabulary | None = None
        self._device = None if self.cuda_device is None else torch.device(self.cuda_device)
        self._epoch = -1
        self._resume_at = (0, 0)
        self._loader: TorchDataLoader | None = None
        self._sampler = EpochBatches()
        self._budget: tuple[tuple[int, int, bool], BudgetBatches] | None = None

    @property
    def documents(self) -> np.ndarray:
        """The rows of the corpus that this loader draws from."""
        try:
            return self.reader.documents(self.data_path)
        except SourceError as error:
            raise ConfigurationError(str(error)) from error

    def __len__(self) -> int:
        """Batches an epoch, the same in every process."""
        if self.max_tokens is not None:
            return len(self._budget_batches())
        total, together = len(self.documents), self._together
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

    @property
    def _together(self) -> int:
        """Documents of a batch of all processes."""
        assert self.batch_size is not None
        return self.batch_size * world_size()

    def _budget_batches(self) -> BudgetBatches:
        documents, processes = self.documents, world_size()
        # It looks at every document, so it is kept; the group of processes may come to be later.
        settings = len(documents), processes, self.reader.sample_spans
        if self._budget is None or self._budget[0] != settings:
            assert self.max_tokens is not None
            lengths = self.reader.corpus(self.data_path).num_tokens
            try:
                batches = BudgetBatches(
                    self.reader.expected_tokens(), lengths, documents, self.max_tokens, processes
                )
            except ValueError as error:
                raise ConfigurationError(f"{self.data_path}: {error}") from error
            self._budget = settings, batches
        return self._budget[1]

    def order(self, epoch: int) -> np.ndarray:
        """The rows of one epoch, in the order in which all processes together read them."""
        rows = self.documents
        if not self.shuffle:
            return rows
        if not self.consecutive:
            return shuffled(rows, (self.seed, epoch))
        return shuffled_batches(rows, self._together, (self.seed, epoch))

    def batches(self, epoch: int, first: int = 0) -> Iterator[np.ndarray]:
        """This process's rows of each batch of an epoch, from batch number `first` on."""
        rows = self.order(epoch)
        if self.max_tokens is not None:
            cuts = self._budget_batches().cuts(rows)
        else:
            cuts = np.minimum(np.arange(len(self) + 1) * self._together, len(rows))
        return shares(rows, cuts[first:], process_rank(), world_size())

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
            yield batch if self._device is None else moved(batch, self._device)

    def _fetch(self, epoch: int, first: int) -> Iterator[TensorDict]:
        if self._loader is None:
            self._loader = TorchDataLoader(
                Batches(self.reader, self.data_path, self._vocab),
                sampler=self._sampler,
                batch_size=None,  # the sampler's items are whole batches
                collate_fn=as_it_is,
                num_workers=self.num_workers,
                multiprocessing_context=self.start_method if self.num_workers else None,
                persistent_workers=self.num_workers > 0,
                worker_init_fn=one_thread,
                pin_memory=self._device is not None and self._device.type == "cuda",
                # Without one of its own, torch would draw from the global generator.
                generator=torch.Generator(),
            )
        self._sampler.start(epoch, self.batches(epoch, first))
        for batch in self._loader:
            yield batch.tensors() if isinstance(batch, PackedBatch) else batch  # type: ignore[misc]

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
