"""The DatasetReader "sentences": rows of a corpus, each a sentence, whole."""

import logging
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer

from declutr.data.document_rows import DocumentRows
from declutr.data.row_reader import RowReader
from declutr.data.row_views import NeighbourPairs, WholeTexts
from declutr.sampling.document_selection import (
    UnusableDocuments,
    count_where,
    is_blank,
    rows_where,
)

logger = logging.getLogger(__name__)

NEXT = "next"


@DatasetReader.register("sentences")
class SentenceReader(RowReader):
    """Whole sentences for training, one a row, or pairs of neighbouring ones.

    Reads what the reader "declutr" reads, and keeps it as that does. Nothing is drawn: the second
    view of a sentence is the model's business (dropout, cutoff), or, with `positives: "next"`, the
    sentence after it. Documents become such rows by `declutr split-sentences`.

    Fields: `anchors`, the sentence `(L,)`. With `positives: "next"`, `anchors` `(1, L)` and
    `positives` `(1, L)`, a sentence and the next one of its document. Blank rows lie between
    documents; a corpus of several files needs one at the end of each. With `with_ids` also `ids`,
    the number of the sentence's row (of a pair, the first one's), and `documents`, the number of
    blank rows before it: the same for sentences of the same document, and of no others.

    # Parameters

    positives : `"next"` for pairs of neighbours (Quick-Thoughts; Logeswaran & Lee, 2018).
    min_document_len : rows of fewer tokens, at least 1, are left out in training. In pairs, a
        sentence that is left out has no neighbours: none takes its place.
    with_ids : give `ids` and `documents` in training, for objectives that know sentences again
        (`instance_discrimination`) or neighbours (`quick_thoughts`).
    the others : as for every reader (`declutr.data.row_reader.RowReader`). `max_instances` counts
        pairs, where there are any.

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
        """The instance of a text alone, whole; a neighbour has only a row of a corpus."""
        return self._whole_text(text)


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
    limit: Optional[int]
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
        used = rows_where(lambda part: part >= self.min_document_len, lengths)
        rows = used[:-1][np.diff(used) == 1] if self.followed else used
        limit = np.inf if self.limit is None else self.limit
        logger.info(
            "%s: %d rows; %d sentences used%s; %d skipped (%d blank). %d are too long and are cut.",
            source,
            len(lengths),
            len(used),
            f", which make {len(rows)} pairs of neighbours" if self.followed else "",
            len(lengths) - len(used),
            count_where(is_blank, lengths),
            count_where(lambda part: part > limit, lengths),
        )
        if not len(rows):
            what = (
                ", and no two of them follow each other. Write the sentences of a document on "
                "consecutive lines (declutr split-sentences does), or remove positives."
                if len(used)
                else ". Add sentences, or lower min_document_len."
            )
            raise UnusableDocuments(
                f"{source}: {len(used)} of {len(lengths)} rows have at least "
                f"{self.min_document_len} token(s) (min_document_len){what}"
            )
        return rows
