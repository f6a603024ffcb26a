"""The DatasetReader "sentences", which reads each row of a corpus as one whole sentence."""

import logging
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer

from declutr.data.document_rows import DocumentRows
from declutr.data.row_reader import RowReader
from declutr.data.row_views import NeighbourPairs, WholeTexts
from declutr.sampling import document_selection

logger = logging.getLogger(__name__)

NEXT = "next"


@DatasetReader.register("sentences")
class SentenceReader(RowReader):
    """A reader of whole sentences, one per row, or of pairs of neighbouring sentences.

    It reads the same files as the reader "declutr" and keeps their token ids in the same way. It
    draws nothing: the model makes the second view of a sentence (by dropout or cutoff), or, with
    `positives: "next"`, the second view is the next sentence. The command `declutr split-sentences`
    turns documents into such rows.

    Fields: `anchors`, the sentence `(L,)`. With `positives: "next"`, `anchors` `(1, L)` and
    `positives` `(1, L)`, a sentence and the next one of its document. Blank rows separate
    documents; a corpus of several files needs one at the end of each. With `with_ids` also `ids`,
    the row number of the sentence (for a pair, of the first one), and `documents`, the number of
    blank rows before it, which is equal for sentences of the same document only.

    # Parameters

    positives : `"next"` for pairs of neighbours (Quick-Thoughts; Logeswaran & Lee, 2018).
    min_document_len : rows of fewer tokens are left out in training; at least 1. A sentence that is
        left out is no neighbour either, and no other sentence takes its place.
    with_ids : whether to give `ids` and `documents` in training, for objectives that recognise
        sentences (`instance_discrimination`) or neighbours (`quick_thoughts`).
    others : the parameters of every reader (`declutr.data.row_reader.RowReader`). `max_instances`
        counts pairs if `positives` is given.

    # Raises

    `ConfigurationError` : if `positives` is unknown, `min_document_len` is below 1, or no row is
        left to train on.
    `declutr.corpus.documents.SourceError` : if the corpus cannot be read.
    """

    def __init__(
        self,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        positives: Optional[str] = None,
        min_document_len: int = 1,
        *,
        with_ids: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(tokenizer, token_indexers, **others)
        if positives not in (None, NEXT):
            raise ConfigurationError(
                f"Unknown positives '{positives}': expected '{NEXT}' for the next sentence, or "
                "null for sentences alone."
            )
        pairs = positives == NEXT
        choose = SentenceSelection(min_document_len, self._codec.limit, pairs).rows
        rows = DocumentRows(self._files, choose, with_ids, with_documents=with_ids)
        self._training = (NeighbourPairs if pairs else WholeTexts)(rows, self._codec)

    def text_to_instance(  # type: ignore[override]
        self, text: str, row: Optional[int] = None, epoch: Optional[int] = None
    ) -> Instance:
        """Make an instance of one whole text; `row` and `epoch` have no effect.

        It has no positive, because only a row of a corpus has neighbours.
        """
        return self._whole_text(text)


@dataclass(frozen=True)
class SentenceSelection:
    """A selection of the sentences that are long enough, and optionally followed by another one.

    Its method `rows` is a `Choice` (`declutr.data.document_rows`).

    # Parameters

    min_document_len : sentences of fewer tokens are left out; at least 1.
    limit : the number of tokens at which sentences are cut, for the log; `None` for no limit.
    followed : whether the next row must be long enough as well. A sentence that is left out is no
        neighbour, and no other sentence takes its place.

    # Raises

    `ConfigurationError` : if `min_document_len` is below 1.
    """

    min_document_len: int
    limit: Optional[int]
    followed: bool = False

    def __post_init__(self) -> None:
        if self.min_document_len < 1:
            raise ConfigurationError(
                f"min_document_len must be at least 1 token, got {self.min_document_len}: a blank "
                "row is no sentence."
            )

    def rows(self, lengths: np.ndarray, *, source: str) -> np.ndarray:
        """Return the numbers of the rows that are used, in order.

        # Parameters

        lengths : the length of each row in tokens, `(n,)`.
        source : names the rows in messages.

        # Raises

        `UnusableDocuments` : if no row is used.
        """
        used = document_selection.rows_where(lambda part: part >= self.min_document_len, lengths)
        rows = used[:-1][np.diff(used) == 1] if self.followed else used
        limit = np.inf if self.limit is None else self.limit
        blank = document_selection.count_where(document_selection.is_blank, lengths)
        cut = document_selection.count_where(lambda part: part > limit, lengths)
        pairs = f", which make {len(rows)} pairs of neighbours" if self.followed else ""
        logger.info(
            f"{source}: {len(lengths)} rows; {len(used)} sentences used{pairs}; "
            f"{len(lengths) - len(used)} skipped ({blank} blank). {cut} are too long and are cut."
        )
        if not len(rows):
            what = (
                ", and no two of them follow each other. Write the sentences of a document on "
                "consecutive lines (declutr split-sentences does), or remove positives."
                if len(used)
                else ". Add sentences, or lower min_document_len."
            )
            raise document_selection.UnusableDocuments(
                f"{source}: {len(used)} of {len(lengths)} rows have at least "
                f"{self.min_document_len} token(s) (min_document_len){what}"
            )
        return rows
