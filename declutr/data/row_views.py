"""Views of the rows of a source for a batch: whole texts, spans of them, or groups of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from allennlp.data import Field

from declutr.corpus import Paths, normalize_whitespace
from declutr.data.codecs import Codec, WordPieceCodec
from declutr.data.collation import PackedSpans
from declutr.sampling.row_draws import RowDraws
from declutr.sampling.spans import Spans, SpanSampler

if TYPE_CHECKING:  # Only batches by `max_tokens` count tokens, so it is imported where they do.
    from declutr.sampling.token_budget import ExpectedTokens

_PARTS = {"anchors": slice(0, 1), "positives": slice(1, 2), "negatives": slice(2, None)}


class RowSource(Protocol):
    """A protocol of sources of rows, which also select the rows that are used."""

    def corpus(self, path: Paths) -> Any:
        """Return the rows at `path`, reading them on the first call.

        The result has `num_tokens`, `(len(corpus),)`. Row numbers count over all files at the path,
        from 0.
        """

    def used(self, path: Paths) -> np.ndarray:
        """Return the numbers of the rows that give instances, in order.

        It is called before workers start, and loads what they need of the source into memory.

        # Raises

        `ConfigurationError` : if there are none.
        """

    def beside(self, path: Paths, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """Return the numbers beside the texts of these rows, by field, `(len(rows),)` each."""


@dataclass(eq=False)
class RowViews:
    """A base class of what a batch holds of the rows of a source.

    # Parameters

    source : the rows.
    codec : how texts become token ids.
    """

    source: RowSource
    codec: Codec

    draws_anew = False
    """Whether the views of a row differ from epoch to epoch."""
    texts_a_row = 1
    """The number of texts in the views of a row, each about as long as the row."""

    def expected_tokens(self) -> ExpectedTokens:
        """Return an estimate of the tokens that a row adds to a batch, by its `num_tokens`.

        Special tokens are included.
        """
        from declutr.sampling.token_budget import ExpectedTokens

        limit, special = self.codec.limit, self.codec.num_special_tokens
        return ExpectedTokens(None, limit, special, self.texts_a_row)

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        """Return the views of these rows in an epoch, packed, by field.

        The codec must be a `WordPieceCodec`.
        """
        raise NotImplementedError

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        """Return the views of one row in an epoch as the fields of an instance."""
        raise NotImplementedError

    def all_tokens(self, path: Paths, row: int) -> dict[str, Field]:
        """Return fields with all tokens that the views of one row may have in any epoch."""
        return self.fields(path, row, 0)

    def _pack(self, spans: Sequence[np.ndarray], shape: tuple[int, ...]) -> PackedSpans:
        assert isinstance(self.codec, WordPieceCodec)
        return self.codec.pack(spans, shape)


class WholeTexts(RowViews):
    """Views of one whole text per row: `anchors` `(L,)`."""

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        corpus = self.source.corpus(path)
        return {"anchors": self._pack([corpus[row] for row in rows], (len(rows),))}

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        return {"anchors": self.codec.text_field(self.source.corpus(path)[row])}


@dataclass(eq=False)
class SampledSpans(RowViews):
    """Views of A anchors and A * P positives per row (Giorgi et al., 2021, section 3.2).

    They are drawn anew in every epoch. `anchors` are `(A, L)` and `positives` `(A * P, L)`, with
    the positives of the first anchor first.
    """

    sampler: SpanSampler
    draws: RowDraws

    def __post_init__(self) -> None:
        self.draws_anew = self.draws.resample

    def expected_tokens(self) -> ExpectedTokens:
        """Return an estimate of the tokens that a row adds to a batch: the mean over the draws.

        Tails that the transformer does not take are not counted.
        """
        from declutr.sampling.token_budget import ExpectedTokens

        return ExpectedTokens(self.sampler, self.codec.limit, self.codec.num_special_tokens)

    def drawn(self, length: int, *key: int) -> Spans:
        """Draw the spans of a document.

        # Parameters

        length : the length of the document in tokens.
        key : the arguments of `RowDraws.at`, which identify the draw.
        """
        return self.sampler.shrunk_to(length).sample(length, self.draws.at(*key))

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        corpus = self.source.corpus(path)
        count = self.sampler.num_anchors
        anchors: list[np.ndarray] = []
        positives: list[np.ndarray] = []
        for row in rows:
            intervals = _intervals(self.drawn(int(corpus.num_tokens[row]), epoch, row))
            parts = corpus.parts(row, intervals["anchors"] + intervals["positives"])
            anchors += parts[:count]
            positives += parts[count:]
        return {
            "anchors": self._pack(anchors, (len(rows), count)),
            "positives": self._pack(positives, (len(rows), count * self.sampler.num_positives)),
        }

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        corpus = self.source.corpus(path)
        return self._fields(corpus[row], self.drawn(int(corpus.num_tokens[row]), epoch, row))

    def all_tokens(self, path: Paths, row: int) -> dict[str, Field]:
        corpus, most = self.source.corpus(path), self.sampler.max_span_len
        length, most = int(corpus.num_tokens[row]), min(most, self.codec.limit or most)
        parts = [(start, min(start + most, length)) for start in range(0, length, most)]
        return {"anchors": self.codec.spans_field(corpus[row], parts)}

    def of_text(self, text: str, row: int | None, epoch: int | None) -> dict[str, Field]:
        """Return the fields of one text that is not a row of a corpus.

        `RowDraws.key_of_text` decides which spans are drawn for it.
        """
        text = normalize_whitespace(text)
        (document,), (length,) = self.codec.encode([text])
        spans = self.drawn(length, *self.draws.key_of_text(text, row, epoch))
        return self._fields(document, spans)

    def _fields(self, document: np.ndarray, spans: Spans) -> dict[str, Field]:
        return {
            name: self.codec.spans_field(document, intervals)
            for name, intervals in _intervals(spans).items()
        }


def _intervals(spans: Spans) -> dict[str, list[list[int]]]:
    return {"anchors": spans.anchors.tolist(), "positives": spans.positives.reshape(-1, 2).tolist()}


class TextGroups(RowViews):
    """A base class of views that are whole texts: an anchor, a positive and possibly negatives.

    `anchors` and `positives` are `(1, L)`, and `negatives` `(K, L)`.
    """

    texts_a_row = 2

    def groups(self, path: Paths, rows: list[int], epoch: int) -> Sequence[Sequence[np.ndarray]]:
        """Return the encoded texts of each row in an epoch: anchor, positive, then the negatives.

        All rows have equally many texts.
        """
        raise NotImplementedError

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        groups = self.groups(path, rows, epoch)
        packed = {}
        for name, part in _PARTS.items():
            texts = [text for group in groups for text in group[part]]
            if texts:
                packed[name] = self._pack(texts, (len(rows), len(texts) // len(rows)))
        return packed

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        (group,) = self.groups(path, [int(row)], epoch)
        return self.fields_of(group)

    def fields_of(self, group: Sequence[np.ndarray]) -> dict[str, Field]:
        """Return the fields of one group of encoded texts, which need not be a row."""
        parts = {name: group[part] for name, part in _PARTS.items()}
        return {name: self.codec.texts_field(texts) for name, texts in parts.items() if texts}


class NeighbourPairs(TextGroups):
    """Views of pairs of a sentence and the next one.

    A pair counts as two sentences of the first one's length. Nearly every sentence is the first of
    one pair and the second of another, so the count of a batch is right on average.
    """

    def groups(self, path: Paths, rows: list[int], epoch: int) -> Sequence[Sequence[np.ndarray]]:
        corpus = self.source.corpus(path)
        return [(corpus[row], corpus[row + 1]) for row in rows]
