"""Rows whole: what embedding needs, and training on sentences."""

from __future__ import annotations

import logging

from allennlp.data import Field

from declutr.corpus.documents import normalize_whitespace
from declutr.data.codecs import TokenCodec, WordPieceCodec
from declutr.data.collation import PackedSpans
from declutr.data.rows.documents import DocumentRows
from declutr.data.rows.protocols import Paths
from declutr.sampling.token_budget import ExpectedTokens

logger = logging.getLogger(__name__)


class WholeTexts:
    """The `RowViews` of one text for a row: `anchors` `(L,)`."""

    draws_anew = False

    def __init__(self, source: DocumentRows, codec: WordPieceCodec | TokenCodec) -> None:
        self.source = source
        self.num_truncated = 0
        """Texts given to `of_text` that were cut."""
        self._codec = codec

    def expected_tokens(self) -> ExpectedTokens:
        return ExpectedTokens(None, self._codec.limit, self._codec.num_special_tokens)

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        assert isinstance(self._codec, WordPieceCodec)
        corpus = self.source.corpus(path)
        return {"anchors": self._codec.pack([corpus[row] for row in rows], (len(rows),))}

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        return {"anchors": self._codec.text_field(self.source.corpus(path)[row])}

    def of_text(self, text: str) -> dict[str, Field]:
        """The fields of a text that is no row; the first one that is cut is logged."""
        (document,), (length,) = self._codec.encode([normalize_whitespace(text)])
        if self._codec.is_truncated(length):
            self._note_truncation(length)
        return {"anchors": self._codec.text_field(document)}

    def _note_truncation(self, length: int) -> None:
        self.num_truncated += 1
        if self.num_truncated == 1:
            logger.warning(
                "A text of %d tokens is longer than what fits (%d beside the special tokens) "
                "and loses its %s. Further ones are counted, not reported one by one.",
                length,
                self._codec.limit,
                "beginning" if self._codec.keeps_end else "tail",
            )
