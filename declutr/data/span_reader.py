"""The DatasetReader "declutr": documents in, anchor and positive spans out."""

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Optional

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import ListField, TextField
from allennlp.data.token_indexers import SingleIdTokenIndexer
from allennlp.data.tokenizers import WhitespaceTokenizer

from declutr.corpus.documents import (
    PathLike,
    SourceError,
    normalize_whitespace,
    read_documents,
    source_files,
)
from declutr.corpus.token_store import TokenStore
from declutr.corpus.tokenized import open_corpus
from declutr.data.codecs import WordPieceCodec, max_content_tokens, max_tokens, text_codec
from declutr.data.collation import PackedBatch, number_field
from declutr.sampling.document_selection import (
    DocumentSelection,
    UnusableDocuments,
    all_rows,
    shuffled,
)
from declutr.sampling.spans import DocumentRandom, Spans, SpanSampler
from declutr.sampling.text_calls import TextCalls, text_digest
from declutr.sampling.token_budget import ExpectedTokens

logger = logging.getLogger(__name__)

_MAX_WORKERS = 256


@DatasetReader.register("declutr")
class DeCLUTRDatasetReader(DatasetReader):
    """Draws anchor and positive spans from unlabelled documents (Giorgi et al., 2021, section 3.2).

    The path is a file with one document a line (plain or compressed), JSON lines, CSV or TSV with a
    header, parquet, a folder of these, a glob, or a list of paths. Documents are tokenised once and
    kept on disk; spans are intervals over their token ids. Which spans a document gives depends on
    `seed`, the epoch and the document's row alone: not on workers, processes, or where a run was
    resumed. A text without a row (`text_to_instance`) gives other ones at each call.

    Without `num_anchors` (or while `sample_spans` is false) an instance is a whole row, blank rows
    included: what embedding needs. Texts longer than the transformer takes lose their tail (or
    their beginning, as the tokenizer's `truncation_side` says), which the log says once and
    `truncated_texts` counts.

    Fields: `anchors`, the A anchors `(A, L)`, and `positives`, the A * P positives `(A * P, L)`,
    those of the first anchor first; without sampling only `anchors`, the text `(L,)`. With
    `with_ids` also `ids`, the number of the document's row, counted over all files from 0.

    # Parameters

    tokenizer, token_indexers : any AllenNLP pair. A `pretrained_transformer` pair takes the fast
        path over cached ids; the default is white space and single ids.
    num_anchors : anchors a document (A). `None` reads texts whole.
    num_positives : positives an anchor (P).
    max_span_len, min_span_len : bounds of span lengths, in tokens without special ones.
    sampling_strategy : `None` (or `"all"`), `"subsuming"` or `"adjacent"`: where positives lie.
    placement : `"uniform"`: starts of a document's anchors are at least 2 * max_span_len apart
        (DeCLUTR, ACL 2021, section 3.2); of documents that are hardly long enough, this nearly
        skips the middle. `"uniform_v1"`: at least max_span_len, as in the first version of the
        paper. `"grid"`: the blocks of the original code. docs/SAMPLING.md compares them.
    short_documents : what to do with a document of fewer than 2 * A * max_span_len tokens, from
        which spans cannot be drawn: `"shrink"` lowers the span lengths for it, `"skip"` leaves it
        out, `"error"` raises. Counts are logged. Documents of fewer than 2 * A tokens are left out
        in any case.
    min_document_len : documents of fewer tokens are left out whatever the policy.
    resample : draw fresh spans every epoch. False fixes them, as validation wants.
    seed : of the draw.
    text_key : the key or column that holds the document in JSON lines, CSV, TSV and parquet.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    cache_dir : where tokenised corpora lie; by default `$DECLUTR_CACHE` or `~/.cache/declutr`.
    max_instances : use no more documents than this, for a quick try.
    lazy : has had no meaning since AllenNLP 2; accepted with a warning.
    with_ids : give `ids` beside spans, for objectives that know documents again
        (`instance_discrimination`). Whole texts have none.

    # Raises

    `ConfigurationError` : values that contradict each other, or no document that is long enough.
    `declutr.corpus.documents.SourceError` : a corpus that cannot be read.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        num_anchors: Optional[int] = None,
        num_positives: Optional[int] = None,
        max_span_len: Optional[int] = None,
        min_span_len: Optional[int] = None,
        sampling_strategy: Optional[str] = None,
        placement: str = "uniform",
        short_documents: str = "shrink",
        min_document_len: int = 0,
        resample: bool = True,
        seed: int = 13370,
        text_key: str = "text",
        encoding_errors: str = "strict",
        cache_dir: Optional[str] = None,
        lazy: Optional[bool] = None,
        max_instances: Optional[int] = None,
        serialization_dir: Optional[str] = None,
        with_ids: bool = False,
    ) -> None:
        super().__init__(
            max_instances=max_instances,
            manual_distributed_sharding=True,
            manual_multiprocess_sharding=True,
            serialization_dir=serialization_dir,
        )
        if lazy is not None:
            warnings.warn(
                "'lazy' has had no meaning since AllenNLP 2: remove it from the dataset reader. "
                'Documents are always streamed; use the data loader of type "declutr".',
                stacklevel=2,
            )
        self._tokenizer = tokenizer or WhitespaceTokenizer()
        self._token_indexers = token_indexers or {"tokens": SingleIdTokenIndexer()}
        self._codec = text_codec(self._tokenizer, self._token_indexers)
        try:
            self._selection = DocumentSelection(short_documents, min_document_len)
        except UnusableDocuments as error:
            raise ConfigurationError(str(error)) from None
        self._min_document_len = min_document_len
        self._resample = resample
        self._seed = seed
        self._with_ids = with_ids
        self._reading: dict[str, Any] = {"text_key": text_key, "encoding_errors": encoding_errors}
        self._cache_dir = cache_dir
        self._sampler = self._make_sampler(
            num_anchors, num_positives, max_span_len, min_span_len, sampling_strategy, placement
        )
        self.sample_spans = self._sampler is not None
        self.truncated_texts = 0  # whole texts that were cut
        self._stores: dict[str, TokenStore] = {}
        self._documents: dict[tuple[str, bool], np.ndarray] = {}
        self._random = DocumentRandom()
        self._text_calls = TextCalls()
        # AllenNLP's own loader starts its workers anew every epoch, with a copy of this reader, so
        # the counts of epochs lie in shared memory: one place for each worker of each number of
        # workers, as loaders that share a reader (training, validation) may have different numbers.
        places = 1 + _MAX_WORKERS * (_MAX_WORKERS + 1) // 2
        counts = torch.zeros(2, places, dtype=torch.int64).share_memory_()
        self._epochs_read, self._epochs_begun = counts

    def _make_sampler(
        self,
        num_anchors: int | None,
        num_positives: int | None,
        max_span_len: int | None,
        min_span_len: int | None,
        strategy: str | None,
        placement: str,
    ) -> SpanSampler | None:
        if num_anchors is None:
            return None
        needed = {
            "num_positives": num_positives,
            "max_span_len": max_span_len,
            "min_span_len": min_span_len,
        }
        missing = [key for key, value in needed.items() if value is None]
        if missing:
            raise ConfigurationError(
                f"num_anchors is {num_anchors}, so {', '.join(missing)} must be given as well."
            )
        try:
            sampler = SpanSampler(
                num_anchors=num_anchors,
                strategy=strategy.lower() if strategy else "all",
                placement=placement,
                **needed,  # type: ignore[arg-type]
            )
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        # The paper's 512 on a transformer of 512 positions is meant: the special tokens then cost
        # the tails of the very longest spans. Anything beyond that is a mistake.
        limit = max_tokens(self._tokenizer)
        if limit is not None and sampler.max_span_len > limit:
            raise ConfigurationError(
                f"max_span_len is {sampler.max_span_len}, but the transformer takes {limit} "
                "tokens. Lower max_span_len, or use a transformer for longer texts."
            )
        # From this length on, one side of an anchor always has room for the shortest positive.
        roomy = sampler.max_span_len + 2 * sampler.min_span_len - 1
        tight = sampler.strategy == "adjacent" and sampler.num_anchors == 1
        if tight and roomy > max(sampler.min_document_len, self._min_document_len):
            raise ConfigurationError(
                "With one anchor and sampling_strategy 'adjacent', a positive of min_span_len = "
                f"{sampler.min_span_len} tokens may fit on neither side of the anchor. Lower "
                f"min_span_len to {(sampler.max_span_len + 1) // 2} (half of max_span_len), or "
                f"raise min_document_len to {roomy}."
            )
        return sampler

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
        counts = self._epochs_read, self._epochs_begun
        before = [count.clone() for count in counts]
        calls, self._text_calls = self._text_calls, TextCalls()
        try:
            yield
        finally:
            self._text_calls = calls
            for count, value in zip(counts, before, strict=True):
                count.copy_(value)

    @property
    def draws_anew(self) -> bool:
        """Whether instances differ from epoch to epoch, so that keeping them is a mistake."""
        return self.sample_spans and self._resample

    # ----------------------------------------------------------------------------- documents

    def corpus(self, path: PathLike | Sequence[PathLike]) -> TokenStore:
        """The tokenised documents at `path`, one a row; tokenises them on the first call."""
        key = str(path)
        if key not in self._stores:
            self._stores[key] = open_corpus(
                path, self._codec, cache_dir=self._cache_dir, **self._reading
            )
        return self._stores[key]

    def documents(self, path: PathLike | Sequence[PathLike]) -> np.ndarray:
        """The rows of the corpus that give instances, in order, after the short-document policy."""
        key = str(path), self.sample_spans
        if key not in self._documents:
            lengths = self.corpus(path).num_tokens
            if self.sample_spans:
                assert self._sampler is not None
                try:
                    rows = self._selection.rows(lengths, self._sampler, key[0])
                except UnusableDocuments as error:
                    raise ConfigurationError(str(error)) from None
                self._documents[key] = rows
            else:
                self._documents[key] = all_rows(len(lengths))
        return self._documents[key][: self.max_instances]

    def sample(self, path: PathLike | Sequence[PathLike], row: int, epoch: int) -> Spans:
        """The spans of one document in one epoch (always the same for `resample=False`)."""
        return self._spans(int(self.corpus(path).num_tokens[row]), epoch, row)

    def _spans(self, length: int, epoch: int, row: int, call: int = 0) -> Spans:
        if self._sampler is None:
            raise ConfigurationError("This reader has no num_anchors: it cannot sample spans.")
        return self._sampler.shrunk_to(length).sample(length, self._rng(epoch, row, call))

    def _rng(self, epoch: int, row: int, call: int = 0) -> np.random.Generator:
        """What is drawn for a row, or for a call with a text (`_key_of_text`)."""
        epoch, call = (epoch, call) if self._resample else (0, 0)
        return self._random.at(self._seed, epoch, row, call)

    def _key_of_text(
        self, text: str, row: int | None, epoch: int | None
    ) -> tuple[int, int] | tuple[int, int, int]:
        """What `_rng` wants for a text: its digest stands in for a row that it does not have."""
        if row is not None:
            return epoch or 0, row
        if epoch is not None or not self._resample:
            return epoch or 0, text_digest(text)
        return self._text_calls.key(text)

    def expected_tokens(self) -> ExpectedTokens:
        """How many tokens, special ones included, a document gives a batch, by its length.

        The mean over the draws of its spans; of a whole text just its length. Tails that the
        transformer does not take do not count.
        """
        sampler = self._sampler if self.sample_spans else None
        return ExpectedTokens(sampler, self._codec.limit, self._codec.num_special_tokens)

    # ------------------------------------------------------------------------------- batches

    @property
    def packs(self) -> bool:
        """Whether `packed` is at hand: batches without an `Instance`, for word pieces."""
        return isinstance(self._codec, WordPieceCodec)

    def packed(
        self, path: PathLike | Sequence[PathLike], rows: Iterable[int], epoch: int = 0
    ) -> PackedBatch:
        """The batch of these rows in one epoch; unfolded, that of their instances, collated."""
        assert isinstance(self._codec, WordPieceCodec)
        corpus, rows = self.corpus(path), [int(row) for row in rows]
        if not self.sample_spans:
            texts = [corpus[row] for row in rows]
            return PackedBatch({"anchors": self._codec.pack(texts, (len(rows),))})
        assert self._sampler is not None
        count = self._sampler.num_anchors
        anchors: list[np.ndarray] = []
        positives: list[np.ndarray] = []
        for row in rows:
            spans = self._spans(int(corpus.num_tokens[row]), epoch, row)
            intervals = spans.anchors.tolist() + spans.positives.reshape(-1, 2).tolist()
            parts = corpus.parts(row, intervals)
            anchors += parts[:count]
            positives += parts[count:]
        return PackedBatch(
            {
                "anchors": self._codec.pack(anchors, (len(rows), count)),
                "positives": self._codec.pack(
                    positives, (len(rows), count * self._sampler.num_positives)
                ),
            },
            self._beside(path, rows),
        )

    def _beside(
        self, path: PathLike | Sequence[PathLike], rows: Sequence[int]
    ) -> dict[str, np.ndarray]:
        """What comes beside the texts of these rows in training, by field: `(len(rows),)` each."""
        return {"ids": np.array(rows, dtype=np.int64)} if self._with_ids else {}

    # ----------------------------------------------------------------------------- instances

    def instance(self, path: PathLike | Sequence[PathLike], row: int, epoch: int = 0) -> Instance:
        """The instance of one row of the corpus in one epoch."""
        document = self.corpus(path)[row]
        if not self.sample_spans:
            return Instance({"anchors": self._codec.text_field(document)})
        fields = self._span_fields(document, self.sample(path, row, epoch))
        return Instance({**fields, **self._beside_fields(path, row)})

    def _span_fields(self, document: np.ndarray, spans: Spans) -> dict[str, Field]:
        return {
            "anchors": self._codec.spans_field(document, spans.anchors.tolist()),
            "positives": self._codec.spans_field(document, spans.positives.reshape(-1, 2).tolist()),
        }

    def _beside_fields(self, path: PathLike | Sequence[PathLike], row: int) -> dict[str, Field]:
        beside = self._beside(path, [row])
        return {name: number_field(values[0].item()) for name, values in beside.items()}

    def text_to_instance(  # type: ignore[override]
        self, text: str, row: Optional[int] = None, epoch: Optional[int] = None
    ) -> Instance:
        """The instance of a text; while spans are sampled, with other ones at each call.

        They depend on `seed`, the epoch, the text and the number of calls with it in that epoch,
        the epoch being that of the last `read` to begin (0 before the first); with
        `resample=False`, on `seed` and the text alone. Some 100 bytes are kept for each different
        text of an epoch, until the next begins.

        It is of no corpus, and has no `ids`.

        # Parameters

        text : white space in it counts once.
        row, epoch : if both are given, the spans are those of this row of a corpus in this epoch;
            a row alone means epoch 0. An epoch alone has the same spans of the text at each call.
        """
        text = normalize_whitespace(text)
        arrays, lengths = self._codec.encode([text])
        if not self.sample_spans:
            self._note_truncation(lengths[0])
            return Instance({"anchors": self._codec.text_field(arrays[0])})
        spans = self._spans(lengths[0], *self._key_of_text(text, row, epoch))
        return Instance(self._span_fields(arrays[0], spans))

    def _note_truncation(self, length: int) -> None:
        if self._codec.is_truncated(length):
            self.truncated_texts += 1
            if self.truncated_texts == 1:
                logger.warning(
                    "A text of %d tokens is longer than what fits (%d beside the special tokens) "
                    "and loses its %s. Further ones are counted, not reported one by one.",
                    length,
                    max_content_tokens(self._tokenizer),
                    "beginning" if self._codec.keeps_end else "tail",
                )

    def apply_token_indexers(self, instance: Instance) -> None:
        for field in instance.fields.values():
            for text in field.field_list if isinstance(field, ListField) else [field]:
                if isinstance(text, TextField):
                    text.token_indexers = self._token_indexers

    def read(self, file_path: Any) -> Iterator[Instance]:
        """The instances at a path; while spans are sampled, those of the next epoch.

        A class of yours with a `_read` of its own gets other spans of its texts every epoch, too,
        from `text_to_instance`, whatever the number of workers.
        """
        if self.sample_spans:
            self._text_calls.begin(self._next(self._epochs_begun))
        yield from super().read(file_path)

    def _read(self, file_path: Any) -> Iterable[Instance]:
        """Every instance once: whole texts in order, spans in an order drawn from (seed, epoch).

        The loader of type "declutr" does not come here; AllenNLP's own loaders, `predict` and
        `build-vocab` do. Whole texts are streamed, and nothing is kept of them on disk.
        """
        try:
            if self.sample_spans:
                yield from self._sampled(file_path)
            else:
                texts = read_documents(source_files(file_path), **self._reading)
                for text in self.shard_iterable(texts):
                    yield self.text_to_instance(text)
        except SourceError as error:
            raise ConfigurationError(str(error)) from error

    def _sampled(self, path: Any) -> Iterator[Instance]:
        rows, epoch = self.documents(path), self._next(self._epochs_read)
        if self._resample:
            rows = shuffled(rows, (self._seed, epoch))
        for row in self.shard_iterable(rows):
            yield self.instance(path, int(row), epoch)

    def _next(self, epochs: torch.Tensor) -> int:
        """The epoch of this process's place in a count, which goes on to the next."""
        worker = self.get_worker_info()
        place = 0
        if worker is not None:
            place = 1 + worker.num_workers * (worker.num_workers - 1) // 2 + worker.id
        epoch = int(epochs[place])
        epochs[place] += 1
        return epoch
