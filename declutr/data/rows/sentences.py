"""Which rows are sentences for training, and pairs of neighbouring ones."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import Field

from declutr.data.codecs import TokenCodec, WordPieceCodec
from declutr.data.collation import PackedSpans
from declutr.data.rows.documents import DocumentRows
from declutr.data.rows.protocols import Paths
from declutr.sampling.document_selection import UnusableDocuments
from declutr.sampling.token_budget import ExpectedTokens

logger = logging.getLogger(__name__)

_AT_ONCE = 1 << 20  # rows looked at together


@dataclass(frozen=True)
class SentenceSelection:
    """The `Choice` of sentences that are long enough, or of those that another one follows.

    # Parameters

    min_document_len : sentences of fewer tokens, at least 1, are left out.
    limit : of tokens; sentences above it are cut, which the log counts.
    followed : the next row must be long enough as well: a sentence that is left out has no
        neighbours, and none takes its place.

    # Raises

    `ConfigurationError` : a `min_document_len` below 1.
    """

    min_document_len: int
    limit: int | None
    followed: bool = False

    def __post_init__(self) -> None:
        if self.min_document_len < 1:
            raise ConfigurationError(
                f"min_document_len must be at least 1 token, got {self.min_document_len}: a blank "
                "row is no sentence."
            )

    def rows(self, lengths: np.ndarray, *, source: str) -> np.ndarray:
        """# Raises

        `UnusableDocuments` : none of them is used.
        """
        dtype = np.int32 if len(lengths) <= np.iinfo(np.int32).max else np.int64
        found, blank, sentences, cut = [np.empty(0, dtype)], 0, 0, 0
        for begin in range(0, len(lengths), _AT_ONCE):
            part = np.asarray(lengths[begin : begin + _AT_ONCE + 1])  # and who follows the last
            used = part >= self.min_document_len
            own = slice(min(_AT_ONCE, len(lengths) - begin))
            blank += int((part[own] == 0).sum())
            sentences += int(used[own].sum())
            cut += 0 if self.limit is None else int((part[own] > self.limit).sum())
            if self.followed:
                used = used[:-1] & used[1:]
            found.append((np.flatnonzero(used[own]) + begin).astype(dtype))
        rows = np.concatenate(found)
        logger.info(
            "%s: %d rows; %d sentences used%s; %d skipped (%d blank). %d are too long and are cut.",
            source,
            len(lengths),
            sentences,
            f", which make {len(rows)} pairs of neighbours" if self.followed else "",
            len(lengths) - sentences,
            blank,
            cut,
        )
        if not len(rows):
            raise self._nothing_used(source, sentences, len(lengths))
        return rows

    def _nothing_used(self, source: str, sentences: int, rows: int) -> UnusableDocuments:
        what = (
            ", and no two of them follow each other. Write the sentences of a document on "
            "consecutive lines (declutr split-sentences does), or remove positives."
            if sentences
            else ". Add sentences, or lower min_document_len."
        )
        return UnusableDocuments(
            f"{source}: {sentences} of {rows} rows have at least {self.min_document_len} token(s) "
            f"(min_document_len){what}"
        )


class NeighbourPairs:
    """The `RowViews` of a sentence and the next one: `anchors` and `positives`, `(1, L)` each."""

    draws_anew = False

    def __init__(self, source: DocumentRows, codec: WordPieceCodec | TokenCodec) -> None:
        self.source = source
        self._codec = codec

    def expected_tokens(self) -> ExpectedTokens:
        """A pair counts as two sentences of the first one's length.

        Nearly all sentences are the first of one pair and the second of another, so a batch counts
        right on average.
        """
        return TwoTexts(None, self._codec.limit, self._codec.num_special_tokens)

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        assert isinstance(self._codec, WordPieceCodec)
        corpus, shape = self.source.corpus(path), (len(rows), 1)
        return {
            "anchors": self._codec.pack([corpus[row] for row in rows], shape),
            "positives": self._codec.pack([corpus[row + 1] for row in rows], shape),
        }

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        corpus = self.source.corpus(path)
        return {
            name: self._codec.spans_field(corpus[place], [(0, int(corpus.num_tokens[place]))])
            for name, place in (("anchors", row), ("positives", row + 1))
        }


class TwoTexts(ExpectedTokens):
    """Two texts of a length."""

    def units(self, lengths: np.ndarray) -> np.ndarray:
        return 2 * super().units(lengths)
