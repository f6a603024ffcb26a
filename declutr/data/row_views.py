"""What a batch holds of the rows of a source: whole texts, spans of them, or pairs of texts."""

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

if TYPE_CHECKING:  # only batches by tokens count them beforehand
    from declutr.sampling.token_budget import ExpectedTokens

_PARTS = {"anchors": slice(0, 1), "positives": slice(1, 2), "negatives": slice(2, None)}


class RowSource(Protocol):
    """Where rows come from, and which of them are used."""

    def corpus(self, path: Paths) -> Any:
        """The rows at a path, read on the first call, with `num_tokens` `(len(corpus),)`.

        Row numbers count over all files there, from 0.
        """

    def used(self, path: Paths) -> np.ndarray:
        """The numbers of the rows that give instances, in order.

        It is called before there are workers: what they need of the source is in memory then.

        # Raises

        `ConfigurationError` : there are none.
        """

    def beside(self, path: Paths, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """What comes beside the texts of these rows, by field: `(len(rows),)` each."""


@dataclass(eq=False)
class RowViews:
    """What a batch holds of the rows of a source.

    # Parameters

    source : the rows.
    codec : how texts become token ids.
    """

    source: RowSource
    codec: Codec

    draws_anew = False
    """Whether a row gives something else in every epoch."""
    texts_a_row = 1
    """How many texts a row gives, each about as long as it."""

    def expected_tokens(self) -> ExpectedTokens:
        """How many tokens, special ones included, a row gives a batch, by its `num_tokens`."""
        from declutr.sampling.token_budget import ExpectedTokens

        limit, special = self.codec.limit, self.codec.num_special_tokens
        return ExpectedTokens(None, limit, special, self.texts_a_row)

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        """The views of these rows in an epoch, by field; the codec is a `WordPieceCodec`."""
        raise NotImplementedError

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        """The same of one row, for an instance."""
        raise NotImplementedError

    def _pack(self, spans: Sequence[np.ndarray], shape: tuple[int, ...]) -> PackedSpans:
        assert isinstance(self.codec, WordPieceCodec)
        return self.codec.pack(spans, shape)


class WholeTexts(RowViews):
    """One text for a row: `anchors` `(L,)`."""

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        corpus = self.source.corpus(path)
        return {"anchors": self._pack([corpus[row] for row in rows], (len(rows),))}

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        return {"anchors": self.codec.text_field(self.source.corpus(path)[row])}


@dataclass(eq=False)
class SampledSpans(RowViews):
    """A anchors and A * P positives (Giorgi et al., 2021, section 3.2), drawn anew in every epoch.

    `anchors` are `(A, L)` and `positives` `(A * P, L)`, those of the first anchor first.
    """

    sampler: SpanSampler
    draws: RowDraws

    def __post_init__(self) -> None:
        self.draws_anew = self.draws.resample

    def expected_tokens(self) -> ExpectedTokens:
        """The mean over the draws. Tails that the transformer does not take do not count."""
        from declutr.sampling.token_budget import ExpectedTokens

        return ExpectedTokens(self.sampler, self.codec.limit, self.codec.num_special_tokens)

    def drawn(self, length: int, *key: int) -> Spans:
        """The spans of a document of so many tokens; `key` says which draw (`RowDraws.at`)."""
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

    def of_text(self, text: str, row: int | None, epoch: int | None) -> dict[str, Field]:
        """The fields of a text that is no row; `RowDraws.key_of_text` says what is drawn."""
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
    return {
        "anchors": spans.anchors.tolist(),
        "positives": spans.positives.reshape(-1, 2).tolist(),
    }


class TextGroups(RowViews):
    """Whole texts that belong together: an anchor, a positive and, where there are any, negatives.

    `anchors` and `positives` are `(1, L)`, and `negatives` `(K, L)`.
    """

    texts_a_row = 2

    def groups(self, path: Paths, rows: list[int], epoch: int) -> Sequence[Sequence[np.ndarray]]:
        """The encoded texts of each row in an epoch, equally many."""
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
        """The fields of encoded texts that may be no row."""
        parts = {name: group[part] for name, part in _PARTS.items()}
        return {name: self.codec.texts_field(texts) for name, texts in parts.items() if texts}


class NeighbourPairs(TextGroups):
    """A sentence and the next one.

    A pair counts as two sentences of the first one's length. Nearly all sentences are the first of
    one pair and the second of another, so a batch counts right on average.
    """

    def groups(self, path: Paths, rows: list[int], epoch: int) -> Sequence[Sequence[np.ndarray]]:
        corpus = self.source.corpus(path)
        return [(corpus[row], corpus[row + 1]) for row in rows]
