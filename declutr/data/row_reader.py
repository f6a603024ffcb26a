"""The base class of the package's DatasetReaders: rows at a path, and views made of them."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.dataset_readers.dataset_reader import WorkerInfo
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import WhitespaceTokenizer

from declutr.archives.safety.building import is_untrusted
from declutr.corpus import Paths, SourceError, normalize_whitespace
from declutr.data.codecs import WordPieceCodec, shortened, text_codec
from declutr.data.collation import PackedBatch, number_field
from declutr.data.reader_keys import require_known_keys
from declutr.system import raised_as
from declutr.system.host_memory import shared_zeros

if TYPE_CHECKING:  # Embedding needs no corpus, so this is imported when one is read.
    from declutr.data.document_rows import DocumentFiles
    from declutr.data.row_views import RowViews
    from declutr.sampling.row_draws import RowDraws
    from declutr.sampling.token_budget import ExpectedTokens

logger = logging.getLogger(__name__)

_MAX_WORKERS = 256


class RowReader(DatasetReader):
    """A reader of rows, whose instances are views for training or the whole text of a row.

    The path is a file with one document per line (plain or compressed), JSON lines, CSV or TSV with
    a header, parquet, a folder of these, a glob, or a list of paths. What is drawn for a row
    depends on `seed`, the epoch and the row alone: not on workers, on processes, or on where a run
    was resumed.

    While `sample_spans` is false, as the predictor and the Encoder set it, an instance is a whole
    row, blank rows included, with the field `anchors`, the text `(L,)`. Texts that are longer than
    the transformer allows lose their tail (or their beginning, if the `truncation_side` of the
    tokenizer says so); a warning is logged the first time, and `truncated_texts` counts them.

    A subclass defines `text_to_instance`, and `_training`, the views of rows for training.

    # Parameters

    tokenizer, token_indexers : any AllenNLP pair. A `pretrained_transformer` pair takes the fast
        path over token ids that are kept on disk; the default is white space and single ids. Texts
        are cut at the `max_length` of the tokenizer, in training and in embedding.
    max_length : the number of tokens, special ones included, at which texts are cut in training
        alone. Embeddings are of whole texts, as in the public codes of SimCSE and SCD.
    resample : whether to draw anew in every epoch, and to give AllenNLP's own loaders a new order.
        False repeats the first epoch, as validation wants.
    seed : the seed of everything that is drawn.
    text_key : the key or column that holds the text in JSON lines, CSV, TSV and parquet.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    cache_dir : the folder of tokenised corpora; by default `$DECLUTR_CACHE` or `~/.cache/declutr`.
    max_instances, serialization_dir : as in AllenNLP.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        resample: bool = True,
        seed: int = 13370,
        text_key: str = "text",
        encoding_errors: str = "strict",
        cache_dir: Optional[str] = None,
        max_instances: Optional[int] = None,
        serialization_dir: Optional[str] = None,
        max_length: Optional[int] = None,
        **unknown: Any,
    ) -> None:
        require_known_keys(type(self), RowReader, unknown)
        sharding = {"manual_distributed_sharding": True, "manual_multiprocess_sharding": True}
        super().__init__(max_instances, serialization_dir=serialization_dir, **sharding)
        self._tokenizer = tokenizer or WhitespaceTokenizer()
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._whole_codec = text_codec(self._tokenizer, self._token_indexers)
        self._codec = shortened(self._whole_codec, max_length)  # of training
        # Reading writes to this folder, so an untrusted archive does not choose it.
        self.cache_dir = None if is_untrusted() else cache_dir
        self._reading = text_key, encoding_errors, self.cache_dir
        self._drawing = seed, resample
        self._epochs = EpochCounts()
        self.truncated_texts = 0
        self.sample_spans = True

    _training: "RowViews"

    @cached_property
    def _files(self) -> "DocumentFiles":
        from declutr.data.document_rows import DocumentFiles

        return DocumentFiles(self._codec, *self._reading)

    @cached_property
    def _draws(self) -> "RowDraws":
        from declutr.sampling.row_draws import RowDraws

        return RowDraws(*self._drawing)

    @cached_property
    def _whole(self) -> "RowViews":
        from declutr.data.document_rows import DocumentRows
        from declutr.data.row_views import WholeTexts

        return WholeTexts(DocumentRows(self._files), self._whole_codec)

    @property
    def _views(self) -> "RowViews":
        return self._training if self.sample_spans else self._whole

    @contextmanager
    def no_sample(self) -> Iterator[None]:
        """Read texts whole inside the block."""
        before, self.sample_spans = self.sample_spans, False
        try:
            yield
        finally:
            self.sample_spans = before

    @contextmanager
    def same_epoch_after(self) -> Iterator[None]:
        """Leave the count of epochs and draws as it was before the block.

        All workers of a loader that reads inside the block must be done at its end.
        """
        with self._epochs.unchanged(), self._draws.uncounted():
            yield

    @property
    def draws_anew(self) -> bool:
        """Whether instances differ from epoch to epoch, so that they must not be cached."""
        return self._views.draws_anew

    def corpus(self, path: Paths) -> Any:
        """Return the rows at `path` as the views need them, tokenising them on the first call."""
        return self._views.source.corpus(path)

    def documents(self, path: Paths) -> np.ndarray:
        """Return the numbers of the rows that give instances, in order."""
        return self._views.source.used(path)[: self.max_instances]

    def expected_tokens(self) -> "ExpectedTokens":
        """Return an estimate of the tokens that a row adds to a batch, by its `num_tokens`.

        Special tokens are included.
        """
        return self._views.expected_tokens()

    @property
    def packs(self) -> bool:
        """Whether `packed` can make batches without instances, which needs a `WordPieceCodec`."""
        return isinstance(self._codec, WordPieceCodec)

    def packed(self, path: Paths, rows: Iterable[int], epoch: int = 0) -> PackedBatch:
        """Return the packed batch of these rows in one epoch.

        Its `tensors()` are those of the rows' instances, collated.
        """
        views, numbers = self._views, [int(row) for row in rows]
        return PackedBatch(views.packed(path, numbers, epoch), views.source.beside(path, numbers))

    def instance(self, path: Paths, row: int, epoch: int = 0) -> Instance:
        """Return the instance of one row in one epoch."""
        views = self._views
        fields: dict[str, Field] = views.fields(path, row, epoch)
        for name, values in views.source.beside(path, [row]).items():
            fields[name] = number_field(values[0].item())
        return Instance(fields)

    def vocabulary_instance(self, path: Paths, row: int) -> Instance:
        """Return an instance with the tokens of one row, of which a vocabulary is made."""
        return Instance(self._views.all_tokens(path, row))

    def _whole_text(self, text: str) -> Instance:
        """Make an instance of one whole text; the first text that is cut is logged."""
        codec = self._whole_codec
        (document,), (length,) = codec.encode([normalize_whitespace(text)])
        if codec.is_truncated(length):
            self.truncated_texts += 1
            if self.truncated_texts == 1:
                logger.warning(
                    f"A text of {length} tokens is longer than what fits ({codec.limit} "
                    "beside the special tokens) and loses its "
                    f"{'beginning' if codec.keeps_end else 'tail'}. Further ones are "
                    "counted, not reported one by one."
                )
        return Instance({"anchors": codec.text_field(document)})

    def apply_token_indexers(self, instance: Instance) -> None:
        for field in instance.fields.values():
            for text in field.field_list if isinstance(field, ListField) else [field]:
                if isinstance(text, TextField):
                    text.token_indexers = self._token_indexers

    def read(self, file_path: Any) -> Iterator[Instance]:
        """Yield the instances at a path; while views are drawn, those of the next epoch.

        A subclass with its own `_read` also gets other views in every epoch from
        `text_to_instance`, for any number of workers.
        """
        if self.sample_spans:
            self._draws.begin(self._epochs.begin(self.get_worker_info()))
        yield from super().read(file_path)

    def _read(self, file_path: Any) -> Iterable[Instance]:
        """Yield every instance once.

        Whole texts come in order, and others in an order drawn from (seed, epoch).

        AllenNLP's own loaders, `predict` and `build-vocab` come here; the loader "declutr" does
        not. Whole texts are streamed, and their tokens are not kept on disk.
        """
        with raised_as(ConfigurationError, SourceError):
            if not self.sample_spans:
                for text in self.shard_iterable(self._files.texts(file_path)):
                    yield self.text_to_instance(text)
                return
            rows, epoch = self.documents(file_path), self._epochs.read(self.get_worker_info())
            for row in self.shard_iterable(self._draws.order(rows, epoch)):
                yield self.instance(file_path, int(row), epoch)


class EpochCounts:
    """Counts of the epochs that each worker began, and of the epochs whose rows it read.

    AllenNLP's own loader starts its workers anew in every epoch, each with a copy of the reader, so
    the counts are in shared memory. There is one place for each worker of each number of workers,
    because loaders that share a reader (training, validation) may have different numbers.
    """

    def __init__(self) -> None:
        places = 2, _MAX_WORKERS + 1, _MAX_WORKERS
        self._counts = shared_zeros(*places, dtype=torch.int32)

    def begin(self, worker: Optional[WorkerInfo]) -> int:
        """Return the epoch that this worker begins, from 0, and count it."""
        return self._next(0, worker)

    def read(self, worker: Optional[WorkerInfo]) -> int:
        """Return the epoch whose rows this worker reads, from 0, and count it."""
        return self._next(1, worker)

    def _next(self, kind: int, worker: Optional[WorkerInfo]) -> int:
        place = (kind, worker.num_workers, worker.id) if worker else (kind, 0, 0)
        epoch = int(self._counts[place])
        self._counts[place] += 1
        return epoch

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Restore the counts of all workers at the end of the block.

        The workers must be done by then.
        """
        before = self._counts.clone()
        try:
            yield
        finally:
            self._counts.copy_(before)
