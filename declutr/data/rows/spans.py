"""Anchor and positive spans of documents (Giorgi et al., 2021, section 3.2)."""

from __future__ import annotations

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import Field

from declutr.corpus.documents import normalize_whitespace
from declutr.data.codecs import TokenCodec, WordPieceCodec
from declutr.data.collation import PackedSpans
from declutr.data.rows.documents import DocumentRows
from declutr.data.rows.protocols import Paths
from declutr.sampling.row_draws import RowDraws
from declutr.sampling.spans import Spans, SpanSampler
from declutr.sampling.token_budget import ExpectedTokens


class SampledSpans:
    """The `RowViews` of A anchors and A * P positives, drawn anew in every epoch.

    `anchors` are `(A, L)` and `positives` `(A * P, L)`, those of the first anchor first.
    """

    def __init__(
        self,
        source: DocumentRows,
        codec: WordPieceCodec | TokenCodec,
        sampler: SpanSampler,
        draws: RowDraws,
    ) -> None:
        self.source = source
        self._codec, self._sampler, self._draws = codec, sampler, draws

    @property
    def draws_anew(self) -> bool:
        return self._draws.resample

    def drawn(self, length: int, *key: int) -> Spans:
        """The spans of a document of so many tokens; `key` says which draw (`RowDraws.at`)."""
        return self._sampler.shrunk_to(length).sample(length, self._draws.at(*key))

    def expected_tokens(self) -> ExpectedTokens:
        """The mean over the draws. Tails that the transformer does not take do not count."""
        return ExpectedTokens(self._sampler, self._codec.limit, self._codec.num_special_tokens)

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        assert isinstance(self._codec, WordPieceCodec)
        corpus = self.source.corpus(path)
        count = self._sampler.num_anchors
        anchors: list[np.ndarray] = []
        positives: list[np.ndarray] = []
        for row in rows:
            spans = self.drawn(int(corpus.num_tokens[row]), epoch, row)
            intervals = spans.anchors.tolist() + spans.positives.reshape(-1, 2).tolist()
            parts = corpus.parts(row, intervals)
            anchors += parts[:count]
            positives += parts[count:]
        return {
            "anchors": self._codec.pack(anchors, (len(rows), count)),
            "positives": self._codec.pack(
                positives, (len(rows), count * self._sampler.num_positives)
            ),
        }

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        corpus = self.source.corpus(path)
        return self._fields(corpus[row], self.drawn(int(corpus.num_tokens[row]), epoch, row))

    def of_text(self, text: str, row: int | None, epoch: int | None) -> dict[str, Field]:
        """The fields of a text that is no row; `RowDraws.key_of_text` says what is drawn."""
        text = normalize_whitespace(text)
        (document,), (length,) = self._codec.encode([text])
        return self._fields(
            document, self.drawn(length, *self._draws.key_of_text(text, row, epoch))
        )

    def _fields(self, document: np.ndarray, spans: Spans) -> dict[str, Field]:
        return {
            "anchors": self._codec.spans_field(document, spans.anchors.tolist()),
            "positives": self._codec.spans_field(document, spans.positives.reshape(-1, 2).tolist()),
        }


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
