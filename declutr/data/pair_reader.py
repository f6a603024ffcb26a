"""The DatasetReader "text_pairs": texts with what belongs to them, as a file says."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer
from allennlp.data.fields import ListField

from declutr.corpus.documents import PathLike, normalize_whitespace, source_files
from declutr.corpus.tables import read_rows
from declutr.corpus.text_pairs import (
    Columns,
    LabelOf,
    TextPair,
    class_label,
    read_nli_pairs,
    read_nli_triplets,
    read_pairs,
    score_label,
)
from declutr.data.codecs import TokenCodec, WordPieceCodec
from declutr.data.collation import PackedBatch, PackedSpans, number_field
from declutr.data.fields import SpansField
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.sampling.document_selection import all_rows
from declutr.sampling.token_budget import ExpectedTokens

logger = logging.getLogger(__name__)

NLI = "nli"
LABELS = ("class", "score", NLI)
_TEXTS_AT_ONCE = 4096  # of a call of the tokenizer


class TokenizedPairs:
    """Pairs in memory, every text tokenised once, however many pairs it is part of.

    # Parameters

    pairs : at least one, all with as many negatives and all with a label, or none.
    codec : how texts become arrays.
    """

    def __init__(self, pairs: Sequence[TextPair], codec: Union[WordPieceCodec, TokenCodec]) -> None:
        numbers: dict[str, int] = {}
        self._members = np.array(
            [
                [
                    numbers.setdefault(text, len(numbers))
                    for text in (pair.anchor, pair.positive, *pair.negatives)
                ]
                for pair in pairs
            ],
            dtype=np.int32,
        )  # (n, 2 + K), of texts
        arrays: list[np.ndarray] = []
        lengths: list[int] = []
        texts = list(numbers)
        for begin in range(0, len(texts), _TEXTS_AT_ONCE):
            encoded = codec.encode(texts[begin : begin + _TEXTS_AT_ONCE])
            arrays += encoded[0]
            lengths += encoded[1]
        self._values = np.concatenate(arrays)
        self._ends = np.cumsum([len(array) for array in arrays])
        self._lengths = np.array(lengths)
        labels = [pair.label for pair in pairs if pair.label is not None]
        self._labels: Optional[np.ndarray] = None
        if labels:
            kind = np.int64 if isinstance(labels[0], int) else np.float32
            self._labels = np.array(labels, dtype=kind)
        self.num_truncated = sum(map(codec.is_truncated, lengths))
        taken = self._lengths if codec.limit is None else np.minimum(self._lengths, codec.limit)
        # Where there are no special tokens a blank text is one token all the same.
        counted = np.maximum(taken + codec.num_special_tokens, 1)
        self.num_tokens = counted[self._members].sum(axis=1)
        """What each pair gives a batch, special tokens included and tails left out: `(n,)`."""

    def __len__(self) -> int:
        return len(self._members)

    @property
    def num_texts(self) -> int:
        """Different ones."""
        return len(self._lengths)

    @property
    def num_negatives(self) -> int:
        """Of each pair."""
        return self._members.shape[1] - 2

    def texts(self, row: int) -> list[tuple[np.ndarray, int]]:
        """Anchor, positive and negatives of a pair: the array of each, and its length in tokens."""
        return [
            (
                self._values[self._ends[number - 1] if number else 0 : self._ends[number]],
                int(self._lengths[number]),
            )
            for number in self._members[row].tolist()
        ]

    def labels(self, rows: Sequence[int]) -> Optional[np.ndarray]:
        """Of these pairs: `(len(rows),)`, int64 classes or float32 scores; `None` without."""
        return None if self._labels is None else self._labels[list(rows)]


@DatasetReader.register("text_pairs")
class TextPairReader(DeCLUTRDatasetReader):
    """Pairs and triplets of texts from TSV, CSV, JSON lines or parquet, with labels if wanted.

    They are small data, and are held in memory. Texts are kept whole; the tokenizer's `max_length`
    cuts longer ones. Data of natural language inference makes triplets (`format: "nli"`, for
    supervised SimCSE) or pairs with classes (`labels: "nli"`, for Sentence-BERT).

    While `sample_spans` is false, as predictor and Encoder set it, this is the reader "declutr"
    without sampling: an instance is a whole row of text, blank rows included.

    Fields: `anchors` `(1, L)`, `positives` `(1, L)`, with negatives `negatives` `(K, L)`, with
    labels `labels`, a class (int64) or a score (float32), and with `with_ids` `ids`, the number of
    the pair, from 0.

    # Parameters

    tokenizer, token_indexers : as for the reader "declutr".
    format : `"nli"` puts rows of premise, hypothesis and label together by premise: to each
        hypothesis that it entails, one that contradicts it, as the negative
        (`declutr.corpus.text_pairs.read_nli_triplets`). By default a row is a pair.
    anchor, positive : columns of the two texts, by name or by number from 0; by default "anchor"
        and "positive", or the first two without a header. For natural language inference, premise
        and hypothesis, whose usual names are known.
    negative : column or columns of hard negatives. In JSON one may hold a list.
    label : column of the label, "label" by default, or the third without a header.
    labels : what it is: `"class"` (an int, 0 or above), `"score"` (a number), or `"nli"`
        (entailment 0, neutral 1, contradiction 2; rows without agreement are left out). By default
        pairs have no label.
    max_score : scores are divided by it, 5 for STS.
    header : whether the first line of TSV and CSV names the columns; by default, unless columns are
        given by number.
    resample : whether AllenNLP's own loaders see a new order every epoch.
    seed : of that order, drawn from (seed, epoch).
    text_key, cache_dir : for whole texts, as for the reader "declutr".
    encoding_errors, max_instances, serialization_dir : as there. `max_instances` counts pairs.
    with_ids : give `ids` in training, for objectives that know pairs again.

    # Raises

    `ConfigurationError` : settings that contradict each other.
    `declutr.corpus.documents.SourceError` : data that cannot be read; it names file and line.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        format: Optional[str] = None,
        anchor: Optional[Union[str, int]] = None,
        positive: Optional[Union[str, int]] = None,
        negative: Optional[Union[str, int, list[Union[str, int]]]] = None,
        label: Optional[Union[str, int]] = None,
        labels: Optional[str] = None,
        max_score: float = 1.0,
        header: Optional[bool] = None,
        resample: bool = True,
        seed: int = 13370,
        text_key: str = "text",
        encoding_errors: str = "strict",
        cache_dir: Optional[str] = None,
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
            with_ids=with_ids,
        )
        negatives = [] if negative is None else negative
        negatives = negatives if isinstance(negatives, list) else [negatives]
        self._columns = Columns(anchor, positive, tuple(negatives), label)
        self._triplets = format == NLI and labels is None
        self._labels = labels
        self._label_of = _label_of(labels, max_score)
        _check_settings(format, labels, self._columns, max_score, header)
        self._header = not self._columns.numbered if header is None else header
        self._tokenized: dict[str, TokenizedPairs] = {}
        self.sample_spans = True

    @property
    def draws_anew(self) -> bool:
        """Never: a pair is the same in every epoch, and may be kept."""
        return False

    # --------------------------------------------------------------------------------- pairs

    def pairs(self, path: PathLike | Sequence[PathLike]) -> TokenizedPairs:
        """The pairs at `path`, read and tokenised on the first call."""
        key = str(path)
        if key not in self._tokenized:
            pairs = TokenizedPairs(self.read_pairs(path), self._codec)
            logger.info(
                "%s: %d pairs of %d different texts, of which %d are cut.",
                key,
                len(pairs),
                pairs.num_texts,
                pairs.num_truncated,
            )
            self._tokenized[key] = pairs
        return self._tokenized[key]

    def read_pairs(self, path: PathLike | Sequence[PathLike]) -> list[TextPair]:
        """The pairs at `path` as texts."""
        errors = self._reading["encoding_errors"]
        rows = read_rows(source_files(path), self._header, errors)
        if self._labels == NLI:
            return read_nli_pairs(rows, self._columns, str(path))
        if self._triplets:
            return read_nli_triplets(rows, self._columns, str(path))
        return read_pairs(rows, self._columns, str(path), self._label_of)

    def corpus(self, path: PathLike | Sequence[PathLike]) -> Any:
        """The pairs at `path`; while `sample_spans` is false, the rows of text there.

        Both have a length, and `num_tokens` of each row.
        """
        return self.pairs(path) if self.sample_spans else super().corpus(path)

    def documents(self, path: PathLike | Sequence[PathLike]) -> np.ndarray:
        """The rows that give instances, in order: all."""
        if not self.sample_spans:
            return super().documents(path)
        return all_rows(len(self.pairs(path)))[: self.max_instances]

    def expected_tokens(self) -> ExpectedTokens:
        """How many tokens a row gives a batch, by `num_tokens` of `corpus`."""
        if not self.sample_spans:
            return super().expected_tokens()
        return ExpectedTokens(None, None, 0)  # of pairs, they are counted already

    # ------------------------------------------------------------------------------- batches

    def packed(
        self, path: PathLike | Sequence[PathLike], rows: Iterable[int], epoch: int = 0
    ) -> PackedBatch:
        """The batch of these pairs; unfolded, that of their instances, collated."""
        if not self.sample_spans:
            return super().packed(path, rows, epoch)
        pairs, rows = self.pairs(path), [int(row) for row in rows]
        texts = [[ids for ids, _ in pairs.texts(row)] for row in rows]
        fields = {
            "anchors": self._packed_part(texts, slice(1), 1),
            "positives": self._packed_part(texts, slice(1, 2), 1),
        }
        if pairs.num_negatives:
            fields["negatives"] = self._packed_part(texts, slice(2, None), pairs.num_negatives)
        return PackedBatch(fields, self._beside(path, rows))

    def _beside(
        self, path: PathLike | Sequence[PathLike], rows: Sequence[int]
    ) -> dict[str, np.ndarray]:
        labels = self.pairs(path).labels(rows)
        return {**({} if labels is None else {"labels": labels}), **super()._beside(path, rows)}

    def _packed_part(self, texts: list[list[np.ndarray]], part: slice, count: int) -> PackedSpans:
        assert isinstance(self._codec, WordPieceCodec)
        chosen = [ids for of_pair in texts for ids in of_pair[part]]
        return self._codec.pack(chosen, (len(texts), count))

    # ----------------------------------------------------------------------------- instances

    def instance(self, path: PathLike | Sequence[PathLike], row: int, epoch: int = 0) -> Instance:
        """The instance of one pair, the same in every epoch."""
        if not self.sample_spans:
            return super().instance(path, row, epoch)
        fields = self._pair_fields(self.pairs(path).texts(row))
        return Instance({**fields, **self._beside_fields(path, row)})

    def text_to_instance(  # type: ignore[override]
        self,
        text: str,
        positive: Optional[str] = None,
        negatives: Sequence[str] = (),
        label: Optional[Union[int, float]] = None,
    ) -> Instance:
        """The instance of a pair, or with a text alone, of that text, whole.

        It is of no file, and has no `ids`.
        """
        if positive is None:
            with self.no_sample():
                return super().text_to_instance(text)
        texts = [normalize_whitespace(one) for one in (text, positive, *negatives)]
        fields = self._pair_fields(list(zip(*self._codec.encode(texts), strict=True)))
        if label is not None:
            fields["labels"] = number_field(label)
        return Instance(fields)

    def _pair_fields(self, texts: Sequence[tuple[np.ndarray, int]]) -> dict[str, Field]:
        each = [self._codec.spans_field(ids, [(0, length)]) for ids, length in texts]
        fields: dict[str, Field] = {"anchors": each[0], "positives": each[1]}
        if len(each) > 2:
            fields["negatives"] = _joined(each[2:])
        return fields


def _joined(fields: Sequence[Union[SpansField, ListField]]) -> Field:
    """One field of the spans of several, of one each."""
    first = fields[0]
    if isinstance(first, SpansField):
        spans = [span for field in fields for span in field.spans]  # type: ignore[union-attr]
        types = [types for field in fields for types in field.type_ids]  # type: ignore[union-attr]
        return SpansField(spans, types, first.padding_id, first.name)
    return ListField([text for field in fields for text in field.field_list])  # type: ignore[union-attr]


def _label_of(labels: Optional[str], max_score: float) -> Optional[LabelOf]:
    return {"class": class_label, "score": score_label(max_score)}.get(labels or "")


def _check_settings(
    format: Optional[str],
    labels: Optional[str],
    columns: Columns,
    max_score: float,
    header: Optional[bool],
) -> None:
    """# Raises

    `ConfigurationError` : values that are unknown, or contradict each other.
    """
    if format not in (None, NLI):
        raise ConfigurationError(
            f"Unknown format '{format}': expected 'nli' for premise, hypothesis and label, or null "
            "for rows of pairs. Names of files tell TSV, CSV, JSON and parquet."
        )
    if labels is not None and labels not in LABELS:
        raise ConfigurationError(
            f"Unknown labels '{labels}': expected one of {', '.join(LABELS)}, or null for none."
        )
    natural_inference = NLI in (format, labels)
    if format == NLI and labels not in (None, NLI):
        raise ConfigurationError(
            f"format is 'nli', where labels can be 'nli' only, got '{labels}'. Remove format for "
            "pairs with labels of another kind."
        )
    if columns.label is not None and labels is None and not natural_inference:
        raise ConfigurationError(
            f"The label is in column {columns.label!r}, but labels does not say what it is. "
            f"Expected one of {', '.join(LABELS)}."
        )
    if columns.negatives and natural_inference:
        raise ConfigurationError(
            f"Got negative {list(columns.negatives)}, but natural language inference has rows of "
            "premise, hypothesis and label; contradictions are the negatives. Remove negative."
        )
    if not max_score > 0:
        raise ConfigurationError(f"max_score must be above 0, got {max_score}.")
    given = (columns.anchor, columns.positive, columns.label, *columns.negatives)
    names = [column for column in given if isinstance(column, str)]
    if header is False and names:
        raise ConfigurationError(
            f"Without a header columns have no names, got {names}. Expected numbers, from 0, or "
            "header true."
        )
    if any(isinstance(column, int) and column < 0 for column in given):
        raise ConfigurationError("Columns are numbered from 0; got a number below that.")
