"""What all DatasetReaders of this package are: rows at a path, and the views made of them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Optional

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import WhitespaceTokenizer

from declutr.corpus.documents import SourceError
from declutr.data.codecs import WordPieceCodec, text_codec
from declutr.data.collation import PackedBatch, number_field
from declutr.data.epoch_counts import EpochCounts
from declutr.data.rows.documents import DocumentFiles, DocumentRows
from declutr.data.rows.protocols import Paths, RowViews
from declutr.data.rows.whole_texts import WholeTexts
from declutr.sampling.row_draws import RowDraws
from declutr.sampling.token_budget import ExpectedTokens


class RowReader(DatasetReader):
    """Reads rows, and makes instances of them: views for training, or the whole text of a row.

    The path is a file with one document a line (plain or compressed), JSON lines, CSV or TSV with a
    header, parquet, a folder of these, a glob, or a list of paths. What is drawn for a row depends
    on `seed`, the epoch and the row alone: not on workers, processes, or where a run was resumed.

    While `sample_spans` is false, as predictor and Encoder set it, an instance is a whole row,
    blank rows included: what embedding needs. Then the only field is `anchors`, the text `(L,)`.
    Texts longer than the transformer takes lose their tail (or their beginning, as the tokenizer's
    `truncation_side` says), which the log says once and `truncated_texts` counts.

    A reader calls `_train_on` with its views, and has a `text_to_instance`.

    # Parameters

    tokenizer, token_indexers : any AllenNLP pair. A `pretrained_transformer` pair takes the fast
        path over token ids that are kept on disk; the default is white space and single ids.
        `max_length` of the tokenizer is where texts are cut.
    resample : draw anew every epoch, and have AllenNLP's own loaders see a new order. False repeats
        the first epoch, as validation wants.
    seed : of all that is drawn.
    text_key : the key or column that holds the text in JSON lines, CSV, TSV and parquet.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    cache_dir : where tokenised corpora lie; by default `$DECLUTR_CACHE` or `~/.cache/declutr`.
    max_instances : use no more instances than this, for a quick try.
    serialization_dir : as in AllenNLP.
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
    ) -> None:
        super().__init__(
            max_instances=max_instances,
            manual_distributed_sharding=True,
            manual_multiprocess_sharding=True,
            serialization_dir=serialization_dir,
        )
        self._tokenizer = tokenizer or WhitespaceTokenizer()
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._codec = text_codec(self._tokenizer, self._token_indexers)
        self._files = DocumentFiles(self._codec, text_key, encoding_errors, cache_dir)
        self._draws = RowDraws(seed, resample)
        self._epochs = EpochCounts()
        self._whole = WholeTexts(DocumentRows(self._files), self._codec)
        self._training: Optional[RowViews] = None
        self.sample_spans = False

    def _train_on(self, views: RowViews) -> None:
        """Make these views of rows from now on, while `sample_spans` is true."""
        self._training, self.sample_spans = views, True

    @property
    def _views(self) -> RowViews:
        if not self.sample_spans:
            return self._whole
        if self._training is None:
            raise ConfigurationError("This reader has no num_anchors: it cannot sample spans.")
        return self._training

    @contextmanager
    def no_sample(self) -> Iterator[None]:
        """Reads texts whole inside the block."""
        before, self.sample_spans = self.sample_spans, False
        try:
            yield
        finally:
            self.sample_spans = before

    @contextmanager
    def same_epoch_after(self) -> Iterator[None]:
        """What is read inside the block does not count: afterwards, the same epochs follow as if
        nothing had been read. For all processes of a loader, which must be through by then."""
        with self._epochs.unchanged(), self._draws.uncounted():
            yield

    @property
    def draws_anew(self) -> bool:
        """Whether instances differ from epoch to epoch, so that keeping them is a mistake."""
        return self._views.draws_anew

    @property
    def truncated_texts(self) -> int:
        """How many whole texts were cut."""
        return self._whole.num_truncated

    # ---------------------------------------------------------------------------------- rows

    def corpus(self, path: Paths) -> Any:
        """The rows at `path`: a `TokenStore`, or another kind of `Rows`, as the views want them.

        They are read and tokenised on the first call.
        """
        return self._views.source.corpus(path)

    def documents(self, path: Paths) -> np.ndarray:
        """The numbers of the rows that give instances, in order."""
        return self._views.source.used(path)[: self.max_instances]

    def expected_tokens(self) -> ExpectedTokens:
        """How many tokens, special ones included, a row gives a batch, by `num_tokens`."""
        return self._views.expected_tokens()

    # ------------------------------------------------------------------ batches and instances

    @property
    def packs(self) -> bool:
        """Whether `packed` is at hand: batches without an `Instance`, for word pieces."""
        return isinstance(self._codec, WordPieceCodec)

    def packed(self, path: Paths, rows: Iterable[int], epoch: int = 0) -> PackedBatch:
        """The batch of these rows in one epoch; unfolded, that of their instances, collated."""
        views, numbers = self._views, [int(row) for row in rows]
        return PackedBatch(views.packed(path, numbers, epoch), views.source.beside(path, numbers))

    def instance(self, path: Paths, row: int, epoch: int = 0) -> Instance:
        """The instance of one row in one epoch."""
        views = self._views
        fields: dict[str, Field] = views.fields(path, row, epoch)
        for name, values in views.source.beside(path, [row]).items():
            fields[name] = number_field(values[0].item())
        return Instance(fields)

    def apply_token_indexers(self, instance: Instance) -> None:
        for field in instance.fields.values():
            for text in field.field_list if isinstance(field, ListField) else [field]:
                if isinstance(text, TextField):
                    text.token_indexers = self._token_indexers

    # ------------------------------------------------------------------------------- reading

    def read(self, file_path: Any) -> Iterator[Instance]:
        """The instances at a path; while views are drawn, those of the next epoch.

        A class of yours with a `_read` of its own gets other views of its texts every epoch, too,
        from `text_to_instance`, whatever the number of workers.
        """
        if self.sample_spans:
            self._draws.begin(self._epochs.begin(self.get_worker_info()))
        yield from super().read(file_path)

    def _read(self, file_path: Any) -> Iterable[Instance]:
        """Every instance once: whole texts in order, others in an order drawn from (seed, epoch).

        The loader of type "declutr" does not come here; AllenNLP's own loaders, `predict` and
        `build-vocab` do. Whole texts are streamed, and nothing is kept of them on disk.
        """
        try:
            if self.sample_spans:
                yield from self._in_epoch(file_path)
            else:
                for text in self.shard_iterable(self._files.texts(file_path)):
                    yield self.text_to_instance(text)
        except SourceError as error:
            raise ConfigurationError(str(error)) from error

    def _in_epoch(self, path: Any) -> Iterator[Instance]:
        rows, epoch = self.documents(path), self._epochs.read(self.get_worker_info())
        for row in self.shard_iterable(self._draws.order(rows, epoch)):
            yield self.instance(path, int(row), epoch)
