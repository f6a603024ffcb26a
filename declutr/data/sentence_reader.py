"""The DatasetReader "sentences": rows of a corpus, each a sentence, whole."""

from typing import Optional

from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer

from declutr.data.row_reader import RowReader
from declutr.data.rows.documents import DocumentRows
from declutr.data.rows.sentences import NeighbourPairs, SentenceSelection
from declutr.data.rows.whole_texts import WholeTexts

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
        )
        if positives not in (None, NEXT):
            raise ConfigurationError(
                f"Unknown positives '{positives}': expected '{NEXT}' for the next sentence, or "
                "null for sentences alone."
            )
        pairs = positives == NEXT
        choose = SentenceSelection(min_document_len, self._codec.limit, pairs).rows
        rows = DocumentRows(self._files, choose, with_ids, with_documents=with_ids)
        self._train_on(
            NeighbourPairs(rows, self._codec) if pairs else WholeTexts(rows, self._codec)
        )

    def text_to_instance(  # type: ignore[override]
        self, text: str, row: Optional[int] = None, epoch: Optional[int] = None
    ) -> Instance:
        """The instance of a text alone, whole; a neighbour has only a row of a corpus."""
        return Instance(self._whole.of_text(text))
