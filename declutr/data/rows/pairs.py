"""Pairs of texts from files of rows: texts with what belongs to them, and labels."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from allennlp.data import Field
from allennlp.data.fields import ListField

from declutr.corpus.documents import normalize_whitespace, source_files
from declutr.corpus.natural_language_inference import read_nli_pairs, read_nli_triplets
from declutr.corpus.pair_labels import LabelOf
from declutr.corpus.tables import read_rows
from declutr.corpus.text_pairs import Columns, TextPair, read_pairs
from declutr.data.codecs import TokenCodec, WordPieceCodec
from declutr.data.collation import PackedSpans
from declutr.data.fields import SpansField
from declutr.data.rows.protocols import EncodedText, Paths
from declutr.data.rows.tokenized_pairs import TokenizedPairs
from declutr.sampling.document_selection import all_rows
from declutr.sampling.token_budget import ExpectedTokens

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PairFiles:
    """Pairs as rows of files.

    # Parameters

    columns : where the texts and the label of a pair are.
    kind : `"pairs"` of a row each; `"nli pairs"` or `"nli triplets"` of rows of premise, hypothesis
        and label.
    label_of : what makes a label of what is in its column; `None` for pairs without labels.
    header : the first line of TSV and CSV names the columns.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    """

    columns: Columns
    kind: Literal["pairs", "nli pairs", "nli triplets"]
    label_of: LabelOf | None
    header: bool
    encoding_errors: str

    def read(self, path: Paths) -> list[TextPair]:
        """The pairs at a path, as texts.

        # Raises

        `declutr.corpus.documents.SourceError` : they cannot be read.
        """
        rows = read_rows(source_files(path), self.header, self.encoding_errors)
        if self.kind == "nli pairs":
            return read_nli_pairs(rows, self.columns, str(path))
        if self.kind == "nli triplets":
            return read_nli_triplets(rows, self.columns, str(path))
        return read_pairs(rows, self.columns, str(path), self.label_of)


class PairRows:
    """A `RowSource` of pairs, held in memory; all of them are used.

    # Parameters

    files : the pairs as texts.
    codec : how texts become token ids.
    with_ids : `ids`, the number of the pair, comes beside its texts. Labels do in any case.
    """

    def __init__(
        self,
        files: PairFiles,
        codec: WordPieceCodec | TokenCodec,
        with_ids: bool = False,
    ) -> None:
        self._files, self._codec, self._with_ids = files, codec, with_ids
        self._tokenized: dict[str, TokenizedPairs] = {}

    def corpus(self, path: Paths) -> TokenizedPairs:
        key = str(path)
        if key not in self._tokenized:
            pairs = TokenizedPairs(self._files.read(path), self._codec)
            logger.info(
                "%s: %d pairs of %d different texts, of which %d are cut.",
                key,
                len(pairs),
                pairs.num_texts,
                pairs.num_truncated,
            )
            self._tokenized[key] = pairs
        return self._tokenized[key]

    def used(self, path: Paths) -> np.ndarray:
        return all_rows(len(self.corpus(path)))

    def beside(self, path: Paths, rows: Sequence[int]) -> dict[str, np.ndarray]:
        labels = self.corpus(path).labels(rows)
        beside: dict[str, np.ndarray] = {} if labels is None else {"labels": labels}
        if self._with_ids:
            beside["ids"] = np.array(rows, dtype=np.int64)
        return beside


class PairTexts:
    """The `RowViews` of the texts of a pair.

    `anchors` and `positives` are `(1, L)`, and `negatives`, where there are any, `(K, L)`.
    """

    draws_anew = False

    def __init__(self, source: PairRows, codec: WordPieceCodec | TokenCodec) -> None:
        self.source = source
        self._codec = codec

    def expected_tokens(self) -> ExpectedTokens:
        return ExpectedTokens(None, None, 0)  # of pairs, they are counted already

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        assert isinstance(self._codec, WordPieceCodec)
        pairs = self.source.corpus(path)
        texts = [[ids for ids, _ in pairs.texts(row)] for row in rows]
        parts = {"anchors": (0, 1), "positives": (1, 2)}
        if pairs.num_negatives:
            parts["negatives"] = (2, 2 + pairs.num_negatives)
        packed = {}
        for name, (first, end) in parts.items():
            chosen = [ids for of_pair in texts for ids in of_pair[first:end]]
            packed[name] = self._codec.pack(chosen, (len(rows), end - first))
        return packed

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        return self._fields(self.source.corpus(path).texts(row))

    def of_texts(self, texts: Sequence[str]) -> dict[str, Field]:
        """The fields of an anchor, a positive and negatives that are no row."""
        texts = [normalize_whitespace(text) for text in texts]
        return self._fields(list(zip(*self._codec.encode(texts), strict=True)))

    def _fields(self, texts: Sequence[EncodedText]) -> dict[str, Field]:
        each = [self._codec.spans_field(ids, [(0, length)]) for ids, length in texts]
        fields: dict[str, Field] = {"anchors": each[0], "positives": each[1]}
        if len(each) > 2:
            fields["negatives"] = _joined(each[2:])
        return fields


def _joined(fields: Sequence[SpansField | ListField]) -> Field:
    """One field of the spans of several, of one each."""
    first = fields[0]
    if isinstance(first, SpansField):
        spans = [span for field in fields for span in field.spans]  # type: ignore[union-attr]
        types = [types for field in fields for types in field.type_ids]  # type: ignore[union-attr]
        return SpansField(spans, types, first.padding_id, first.name)
    return ListField([text for field in fields for text in field.field_list])  # type: ignore[union-attr]
