"""The DatasetReader "sentences": rows of a corpus, each a sentence, whole."""

import logging
from collections.abc import Iterable, Sequence
from typing import Optional

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer

from declutr.corpus.documents import PathLike
from declutr.data.codecs import WordPieceCodec
from declutr.data.collation import PackedBatch
from declutr.data.span_reader import DeCLUTRDatasetReader
from declutr.sampling.document_selection import blank_rows
from declutr.sampling.token_budget import ExpectedTokens

logger = logging.getLogger(__name__)

NEXT = "next"
_AT_ONCE = 1 << 20  # rows looked at together


@DatasetReader.register("sentences")
class SentenceReader(DeCLUTRDatasetReader):
    """Whole sentences for training, one a row, or pairs of neighbouring ones.

    Reads what the reader "declutr" reads, and keeps it as that does. Nothing is drawn: the second
    view of a sentence is the model's business (dropout, cutoff), or, with `positives: "next"`, the
    sentence after it. Documents become such rows by `declutr split-sentences`.

    While `sample_spans` is false, as predictor and Encoder set it, an instance is a whole row,
    blank rows included, as of the reader "declutr".

    Fields: `anchors`, the sentence `(L,)`. With `positives: "next"`, `anchors` `(1, L)` and
    `positives` `(1, L)`, a sentence and the next one of its document. Blank rows lie between
    documents; a corpus of several files needs one at the end of each. With `with_ids` also `ids`,
    the number of the sentence's row (of a pair, the first one's), and `documents`, the number of
    blank rows before it: the same for sentences of the same document, and of no others.

    # Parameters

    tokenizer, token_indexers : as for the reader "declutr". `max_length` of the tokenizer is where
        sentences are cut.
    positives : `"next"` for pairs of neighbours (Quick-Thoughts; Logeswaran & Lee, 2018).
    min_document_len : rows of fewer tokens, at least 1, are left out in training. In pairs, a
        sentence that is left out has no neighbours: none takes its place.
    resample : whether AllenNLP's own loaders see a new order every epoch. Sentences stay the same.
    seed : of that order.
    text_key, encoding_errors, cache_dir, max_instances, serialization_dir : as for the reader
        "declutr". `max_instances` counts pairs, where there are any.
    with_ids : give `ids` and `documents` in training, for objectives that know sentences again
        (`instance_discrimination`) or neighbours (`quick_thoughts`).

    # Raises

    `ConfigurationError` : unknown `positives`, a `min_document_len` below 1, or nothing left to
        train on.
    `declutr.corpus.documents.SourceError` : a corpus that cannot be read.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        positives: Optional[str] = None,
        min_document_len: int = 1,
        resample: bool = True,
        seed: int = 13370,
        text_key: str = "text",
        encoding_errors: str = "strict",
        cache_dir: Optional[str] = None,
        max_instances: Optional[int] = None,
        serialization_dir: Optional[str] = None,
        with_ids: bool = False,
    ) -> None:
        if positives not in (None, NEXT):
            raise ConfigurationError(
                f"Unknown positives '{positives}': expected '{NEXT}' for the next sentence, or "
                "null for sentences alone."
            )
        if min_document_len < 1:
            raise ConfigurationError(
                f"min_document_len must be at least 1 token, got {min_document_len}: a blank row "
                "is no sentence."
            )
        super().__init__(
            tokenizer,
            token_indexers,
            min_document_len=min_document_len,
            resample=resample,
            seed=seed,
            text_key=text_key,
            encoding_errors=encoding_errors,
            cache_dir=cache_dir,
            max_instances=max_instances,
            serialization_dir=serialization_dir,
            with_ids=with_ids,
        )
        self._pairs = positives == NEXT
        self._blank: dict[str, np.ndarray] = {}
        self.sample_spans = True

    @property
    def draws_anew(self) -> bool:
        """Never: a sentence is the same in every epoch, and may be kept."""
        return False

    def documents(self, path: PathLike | Sequence[PathLike]) -> np.ndarray:
        """The rows that give instances, in order; of pairs, the first sentence's."""
        if not self.sample_spans:
            return super().documents(path)
        key = str(path), True
        if key not in self._documents:
            self._documents[key] = self._usable(self.corpus(path).num_tokens, key[0])
        if self._with_ids:
            self._blank_rows(path)  # now, for workers to inherit
        return self._documents[key][: self.max_instances]

    def _blank_rows(self, path: PathLike | Sequence[PathLike]) -> np.ndarray:
        key = str(path)
        if key not in self._blank:
            self._blank[key] = blank_rows(self.corpus(path).num_tokens)
        return self._blank[key]

    def _usable(self, lengths: np.ndarray, source: str) -> np.ndarray:
        least, limit = self._min_document_len, self._codec.limit
        dtype = np.int32 if len(lengths) <= np.iinfo(np.int32).max else np.int64
        found, blank, sentences, cut = [np.empty(0, dtype)], 0, 0, 0
        for begin in range(0, len(lengths), _AT_ONCE):
            part = np.asarray(lengths[begin : begin + _AT_ONCE + 1])  # and who follows the last
            used = part >= least
            own = slice(min(_AT_ONCE, len(lengths) - begin))
            blank += int((part[own] == 0).sum())
            sentences += int(used[own].sum())
            cut += 0 if limit is None else int((part[own] > limit).sum())
            if self._pairs:
                used = used[:-1] & used[1:]
            found.append((np.flatnonzero(used[own]) + begin).astype(dtype))
        rows = np.concatenate(found)
        logger.info(
            "%s: %d rows; %d sentences used%s; %d skipped (%d blank). %d are too long and are cut.",
            source,
            len(lengths),
            sentences,
            f", which make {len(rows)} pairs of neighbours" if self._pairs else "",
            len(lengths) - sentences,
            blank,
            cut,
        )
        if not len(rows):
            raise ConfigurationError(
                f"{source}: {sentences} of {len(lengths)} rows have at least {least} token(s) "
                f"(min_document_len)"
                + (
                    ", and no two of them follow each other. Write the sentences of a document on "
                    "consecutive lines (declutr split-sentences does), or remove positives."
                    if sentences
                    else ". Add sentences, or lower min_document_len."
                )
            )
        return rows

    def expected_tokens(self) -> ExpectedTokens:
        """How many tokens, special ones included, a row gives a batch, by its length.

        A pair counts as two sentences of the first one's length: nearly all sentences are the
        first of one pair and the second of another, so a batch counts right on average.
        """
        kind = PairTokens if self.sample_spans and self._pairs else ExpectedTokens
        return kind(None, self._codec.limit, self._codec.num_special_tokens)

    # ------------------------------------------------------------------------------- batches

    def packed(
        self, path: PathLike | Sequence[PathLike], rows: Iterable[int], epoch: int = 0
    ) -> PackedBatch:
        """The batch of these rows; unfolded, that of their instances, collated."""
        if not self.sample_spans:
            return super().packed(path, rows, epoch)
        assert isinstance(self._codec, WordPieceCodec)
        corpus, rows = self.corpus(path), [int(row) for row in rows]
        shape = (len(rows), 1) if self._pairs else (len(rows),)
        fields = {"anchors": self._codec.pack([corpus[row] for row in rows], shape)}
        if self._pairs:
            fields["positives"] = self._codec.pack([corpus[row + 1] for row in rows], shape)
        return PackedBatch(fields, self._beside(path, rows))

    def _beside(
        self, path: PathLike | Sequence[PathLike], rows: Sequence[int]
    ) -> dict[str, np.ndarray]:
        beside = super()._beside(path, rows)
        if self._with_ids:
            blank = self._blank_rows(path)
            # Of another type than `blank`, the rows would have numpy copy all of that.
            places = np.array(rows, dtype=blank.dtype)
            beside["documents"] = np.searchsorted(blank, places).astype(np.int64, copy=False)
        return beside

    # ----------------------------------------------------------------------------- instances

    def instance(self, path: PathLike | Sequence[PathLike], row: int, epoch: int = 0) -> Instance:
        """The instance of one row of the corpus, the same in every epoch."""
        if not self.sample_spans:
            return super().instance(path, row, epoch)
        corpus = self.corpus(path)
        fields: dict[str, Field] = {}
        if self._pairs:
            for name, place in (("anchors", row), ("positives", row + 1)):
                whole = [(0, int(corpus.num_tokens[place]))]
                fields[name] = self._codec.spans_field(corpus[place], whole)
        else:
            fields["anchors"] = self._codec.text_field(corpus[row])
        return Instance({**fields, **self._beside_fields(path, row)})

    def text_to_instance(  # type: ignore[override]
        self, text: str, row: Optional[int] = None, epoch: Optional[int] = None
    ) -> Instance:
        """The instance of a text alone, whole; a neighbour has only a row of a corpus."""
        with self.no_sample():
            return super().text_to_instance(text)


class PairTokens(ExpectedTokens):
    """Two texts of a length."""

    def units(self, lengths: np.ndarray) -> np.ndarray:
        return 2 * super().units(lengths)
