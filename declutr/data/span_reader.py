"""The DatasetReader "declutr": documents in, anchor and positive spans out."""

import warnings
from functools import partial
from typing import Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer

from declutr.data.row_reader import RowReader
from declutr.data.rows.documents import DocumentRows
from declutr.data.rows.protocols import Paths
from declutr.data.rows.spans import SampledSpans, check_fits, span_sampler
from declutr.data.text_limits import max_tokens
from declutr.sampling.document_selection import DocumentSelection, UnusableDocuments
from declutr.sampling.spans import Spans


@DatasetReader.register("declutr")
class DeCLUTRDatasetReader(RowReader):
    """Draws anchor and positive spans from unlabelled documents (Giorgi et al., 2021, section 3.2).

    Documents are tokenised once and kept on disk; spans are intervals over their token ids. Which
    spans a document gives depends on `seed`, the epoch and the document's row alone. A text without
    a row (`text_to_instance`) gives other ones at each call. Without `num_anchors` (or while
    `sample_spans` is false) an instance is a whole row.

    Fields: `anchors`, the A anchors `(A, L)`, and `positives`, the A * P positives `(A * P, L)`,
    those of the first anchor first; without sampling only `anchors`, the text `(L,)`. With
    `with_ids` also `ids`, the number of the document's row, counted over all files from 0.

    # Parameters

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
    lazy : has had no meaning since AllenNLP 2; accepted with a warning.
    with_ids : give `ids` beside spans, for objectives that know documents again
        (`instance_discrimination`). Whole texts have none.
    the others : as for every reader (`declutr.data.row_reader.RowReader`).

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
            tokenizer,
            token_indexers,
            resample=resample,
            seed=seed,
            text_key=text_key,
            encoding_errors=encoding_errors,
            cache_dir=cache_dir,
            max_instances=max_instances,
            serialization_dir=serialization_dir,
        )
        if lazy is not None:
            warnings.warn(
                "'lazy' has had no meaning since AllenNLP 2: remove it from the dataset reader. "
                'Documents are always streamed; use the data loader of type "declutr".',
                stacklevel=2,
            )
        try:
            selection = DocumentSelection(short_documents, min_document_len)
        except UnusableDocuments as error:
            raise ConfigurationError(str(error)) from None
        self._spans: Optional[SampledSpans] = None
        if num_anchors is not None:
            sampler = span_sampler(
                num_anchors, num_positives, max_span_len, min_span_len, sampling_strategy, placement
            )
            check_fits(sampler, max_tokens(self._tokenizer), min_document_len)
            rows = DocumentRows(self._files, partial(selection.rows, sampler=sampler), with_ids)
            self._spans = SampledSpans(rows, self._codec, sampler, self._draws)
            self._train_on(self._spans)

    def sample(self, path: Paths, row: int, epoch: int) -> Spans:
        """The spans of one document in one epoch (always the same for `resample=False`)."""
        if self._spans is None:
            raise ConfigurationError("This reader has no num_anchors: it cannot sample spans.")
        return self._spans.drawn(int(self.corpus(path).num_tokens[row]), epoch, row)

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
        if self.sample_spans and self._spans is not None:
            return Instance(self._spans.of_text(text, row, epoch))
        return Instance(self._whole.of_text(text))
