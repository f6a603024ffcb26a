"""The DatasetReader "declutr", which draws anchor and positive spans from documents."""

import warnings
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer

from declutr.corpus import Paths
from declutr.data.row_reader import RowReader
from declutr.data.tokenizers import max_tokens
from declutr.sampling.spans import Spans, SpanSampler
from declutr.system import raised_as

if TYPE_CHECKING:
    from declutr.data.row_views import SampledSpans

SHORT_DOCUMENTS = ("shrink", "skip", "error")


@DatasetReader.register("declutr")
class DeCLUTRDatasetReader(RowReader):
    """A reader that draws anchor and positive spans from documents.

    The method is that of DeCLUTR (Giorgi et al., 2021, section 3.2).

    Documents are tokenised once and kept on disk; spans are intervals of their token ids. The spans
    of a document depend on `seed`, the epoch and the document's row alone. A text without a row
    (`text_to_instance`) gives other spans at each call. Without `num_anchors` (or while
    `sample_spans` is false), an instance is a whole row.

    Fields: `anchors`, the A anchors `(A, L)`, and `positives`, the A * P positives `(A * P, L)`,
    with those of the first anchor first; without sampling only `anchors`, the text `(L,)`. With
    `with_ids` also `ids`, the number of the document's row, counted over all files from 0.

    # Parameters

    num_anchors : the number of anchors per document (A). `None` reads texts whole.
    num_positives : the number of positives per anchor (P).
    max_span_len, min_span_len : the bounds of span lengths, in tokens without special tokens.
    sampling_strategy : where positives lie: `None` (or `"all"`), `"subsuming"` or `"adjacent"`.
    placement : where anchors lie. `"uniform"`: the anchors of a document start at least 2 *
        max_span_len apart (DeCLUTR, ACL 2021, section 3.2); in documents that are hardly long
        enough, this nearly skips the middle. `"uniform_v1"`: at least max_span_len apart, as in the
        first version of the paper. `"grid"`: in the blocks of the original code. docs/SAMPLING.md
        compares them.
    short_documents : what to do with a document of fewer than 2 * A * max_span_len tokens, which is
        too short for such spans: `"shrink"` lowers the span lengths for it, `"skip"` leaves it out,
        `"error"` raises. Counts are logged. Documents of fewer than 2 * A tokens are always left
        out.
    min_document_len : documents of fewer tokens are left out, whatever `short_documents` is.
    anchor_beta, positive_beta : the two parameters, alpha and beta, of the beta distributions of
        span lengths: `[4, 2]` for anchors, which are long, and `[2, 4]` for positives, unless
        given (section 3.2). Other values draw other spans from the same random numbers.
    lazy : accepted with a warning; it has had no meaning since AllenNLP 2.
    with_ids : whether to give `ids` beside spans, for objectives that recognise documents
        (`instance_discrimination`). Whole texts have none.
    others : the parameters of every reader (`declutr.data.row_reader.RowReader`).

    # Raises

    `ConfigurationError` : if values contradict each other, or no document is long enough.
    `declutr.corpus.documents.SourceError` : if the corpus cannot be read.
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
        anchor_beta: Optional[list[float]] = None,
        positive_beta: Optional[list[float]] = None,
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
            counts, lengths = (num_anchors, num_positives), (max_span_len, min_span_len)
            where, laws = (sampling_strategy, placement), (anchor_beta, positive_beta)
            self._sampler = span_sampler(*counts, *lengths, *where, *laws)
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
        """Return the spans of one document in one epoch.

        They are the same in all epochs if `resample` is false.

        # Parameters

        path : the corpus.
        row : the number of the document's row, counted over all files from 0.
        epoch : the epoch, from 0.
        """
        return self._training.drawn(int(self.corpus(path).num_tokens[row]), epoch, row)

    def text_to_instance(  # type: ignore[override]
        self, text: str, row: Optional[int] = None, epoch: Optional[int] = None
    ) -> Instance:
        """Make an instance of one text; while spans are sampled, with other spans at each call.

        The spans depend on `seed`, the epoch, the text and the number of calls with it in that
        epoch, where the epoch is that of the last `read` to begin (0 before the first); with
        `resample=False`, on `seed` and the text alone. About 100 bytes are kept for each different
        text of an epoch, until the next one begins.

        The instance is not part of a corpus, so it has no `ids`.

        # Parameters

        text : the text; every run of white space counts as one space.
        row, epoch : if both are given, the spans are those of this row of a corpus in this epoch; a
            row alone means epoch 0. With an epoch alone, the text has the same spans at each call.
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
    anchor_beta: list[float] | None = None,
    positive_beta: list[float] | None = None,
) -> SpanSampler:
    """Make the sampler that a configuration asks for.

    # Parameters

    num_anchors, num_positives, max_span_len, min_span_len, strategy, placement : as in
        `declutr.sampling.spans.SpanSampler`. `None` for a number means that it is missing, and
        `None` for `strategy` is `"all"`.
    anchor_beta, positive_beta : as there; `None` for its default.

    # Raises

    `ConfigurationError` : if a value is missing, unknown or out of range.
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
    laws = {"anchor_beta": anchor_beta, "positive_beta": positive_beta}
    with raised_as(ConfigurationError, ValueError):
        return SpanSampler(
            num_anchors=num_anchors,
            strategy=strategy.lower() if strategy else "all",
            placement=placement,
            **needed,  # type: ignore[arg-type]
            **{name: law for name, law in laws.items() if law is not None},  # type: ignore[arg-type]
        )


def check_fits(sampler: SpanSampler, limit: int | None, min_document_len: int) -> None:
    """Raise if spans might not fit into the transformer or into the documents.

    # Parameters

    sampler : draws the spans.
    limit : the number of tokens that the transformer takes, special tokens included; `None` for no
        limit.
    min_document_len : documents of fewer tokens are left out.

    # Raises

    `ConfigurationError` : if spans might not fit.
    """
    # The paper's max_span_len of 512 on a transformer of 512 positions is intended: the special
    # tokens then cost only the tails of the very longest spans. A larger value is a mistake.
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
