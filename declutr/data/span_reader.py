"""The DatasetReader "declutr": documents in, anchor and positive spans out."""

import warnings
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer

from declutr.corpus import Paths
from declutr.data.row_reader import RowReader
from declutr.data.tokenizers import max_tokens
from declutr.sampling.spans import Spans, SpanSampler

if TYPE_CHECKING:
    from declutr.data.row_views import SampledSpans

SHORT_DOCUMENTS = ("shrink", "skip", "error")


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
        *,
        lazy: Optional[bool] = None,
        with_ids: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(tokenizer, token_indexers, **others)
        if lazy is not None:
            warnings.warn(
                "'lazy' has had no meaning since AllenNLP 2: remove it from the dataset reader. "
                'Documents are always streamed; use the data loader of type "declutr".',
                stacklevel=2,
            )
        if short_documents not in SHORT_DOCUMENTS:
            raise ConfigurationError(
                f"Unknown short_documents '{short_documents}': expected one of "
                f"{', '.join(SHORT_DOCUMENTS)}."
            )
        self._selection = short_documents, min_document_len
        self._with_ids = with_ids
        self._sampler: Optional[SpanSampler] = None
        self.sample_spans = num_anchors is not None
        if num_anchors is not None:
            self._sampler = span_sampler(
                num_anchors, num_positives, max_span_len, min_span_len, sampling_strategy, placement
            )
            check_fits(self._sampler, max_tokens(self._tokenizer), min_document_len)

    @cached_property
    def _training(self) -> "SampledSpans":  # type: ignore[override]
        from declutr.data.document_rows import DocumentRows
        from declutr.data.row_views import SampledSpans
        from declutr.sampling.document_selection import DocumentSelection

        if self._sampler is None:
            raise ConfigurationError("This reader has no num_anchors: it cannot sample spans.")
        choose = partial(DocumentSelection(*self._selection).rows, sampler=self._sampler)
        rows = DocumentRows(self._files, choose, self._with_ids)
        return SampledSpans(rows, self._codec, self._sampler, self._draws)

    def sample(self, path: Paths, row: int, epoch: int) -> Spans:
        """The spans of one document in one epoch (always the same for `resample=False`)."""
        return self._training.drawn(int(self.corpus(path).num_tokens[row]), epoch, row)

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
        if self.sample_spans and self._sampler is not None:
            return Instance(self._training.of_text(text, row, epoch))
        return self._whole_text(text)


def span_sampler(
    num_anchors: int,
    num_positives: int | None,
    max_span_len: int | None,
    min_span_len: int | None,
    strategy: str | None,
    placement: str,
) -> SpanSampler:
    """The sampler that a configuration asks for.

    # Raises

    `ConfigurationError` : a value that is missing, or unknown.
    """
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
        return SpanSampler(
            num_anchors=num_anchors,
            strategy=strategy.lower() if strategy else "all",
            placement=placement,
            **needed,  # type: ignore[arg-type]
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def check_fits(sampler: SpanSampler, limit: int | None, min_document_len: int) -> None:
    """See that spans fit into the transformer, and into the documents.

    # Parameters

    limit : tokens that the transformer takes, special ones included; `None` for any number.
    min_document_len : documents of fewer tokens are left out.

    # Raises

    `ConfigurationError` : they may not.
    """
    # The paper's 512 on a transformer of 512 positions is meant: the special tokens then cost the
    # tails of the very longest spans. Anything beyond that is a mistake.
    if limit is not None and sampler.max_span_len > limit:
        raise ConfigurationError(
            f"max_span_len is {sampler.max_span_len}, but the transformer takes {limit} "
            "tokens. Lower max_span_len, or use a transformer for longer texts."
        )
    # From this length on, one side of an anchor always has room for the shortest positive.
    roomy = sampler.max_span_len + 2 * sampler.min_span_len - 1
    tight = sampler.strategy == "adjacent" and sampler.num_anchors == 1
    if tight and roomy > max(sampler.min_document_len, min_document_len):
        raise ConfigurationError(
            "With one anchor and sampling_strategy 'adjacent', a positive of min_span_len = "
            f"{sampler.min_span_len} tokens may fit on neither side of the anchor. Lower "
            f"min_span_len to {(sampler.max_span_len + 1) // 2} (half of max_span_len), or "
            f"raise min_document_len to {roomy}."
        )
