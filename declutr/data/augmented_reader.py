"""The DatasetReader "augmented": rows of a corpus, each a text, and another text made of it."""

from typing import Optional

from allennlp.data import DatasetReader, Instance, TokenIndexer, Tokenizer

from declutr.data.augmentation.augmentation import Augmentation
from declutr.data.row_reader import RowReader
from declutr.data.rows.augmented import AugmentedTexts, KeptTexts, RowTexts
from declutr.data.rows.documents import DocumentRows
from declutr.data.rows.protocols import Paths
from declutr.data.rows.sentences import SentenceSelection


@DatasetReader.register("augmented")
class AugmentedReader(RowReader):
    """Texts, one a row, each beside another that an augmentation makes of it, anew every epoch.

    For EDA (Wei & Zou, 2019) and for CERT (Fang et al., 2020), where a function of yours gives the
    back-translations. If they lie in a file beside their texts, the reader "text_pairs" reads both.

    Reads what the reader "declutr" reads. Texts are kept in memory as well, and augmented ones are
    tokenised while a batch is made, in the workers of the loader. What an augmentation draws
    depends on `seed`, the epoch and the row alone. While `sample_spans` is false nothing is
    augmented.

    Fields: `anchors` `(1, L)`, a text whole, and `positives` `(1, L)`, what became of it. With
    `with_ids` also `ids` and `documents`, as of the reader "sentences".

    # Parameters

    augmentation : gets the text as it stands in its row. Where it leaves nothing to tokenise, the
        text itself is taken, which the log says once and `blank_augmentations` counts.
    both : whether anchors are augmented as well, by draws of their own: CERT contrasts two
        augmentations. One that draws nothing makes two equal texts.
    min_document_len : rows of fewer tokens, at least 1, are left out in training.
    with_ids : as for the reader "sentences".
    the others : as for every reader (`declutr.data.row_reader.RowReader`).

    # Raises

    `ConfigurationError` : a `min_document_len` below 1, or nothing left to train on; with the first
        text, what the augmentation raises, or that the reader is of an archive that was opened
        without trust: augmentations may read files, and import what they are told.
    `declutr.corpus.documents.SourceError` : a corpus that cannot be read.
    """

    def __init__(
        self,
        augmentation: Augmentation,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        both: bool = False,
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
        choose = SentenceSelection(min_document_len, self._codec.limit).rows
        rows = DocumentRows(self._files, choose, with_ids, with_documents=with_ids)
        self._augmented = AugmentedTexts(
            KeptTexts(rows, self._files), augmentation, both, self._codec, self._draws
        )
        self._train_on(self._augmented)

    @property
    def blank_augmentations(self) -> int:
        """How many augmentations left nothing; several workers may miss some of each other's."""
        return self._augmented.num_blank

    def texts(self, path: Paths) -> RowTexts:
        """The rows at `path` as they are, blank ones included; read on the first call."""
        return self._augmented.source.texts(path)

    def text_to_instance(  # type: ignore[override]
        self, text: str, row: Optional[int] = None, epoch: Optional[int] = None
    ) -> Instance:
        """The instance of a text; while texts are augmented, with other draws at each call.

        Draws depend on what those of the reader "declutr" do; with `row` and `epoch`, they are
        those of this row of a corpus in this epoch. It is of no corpus, and has neither `ids` nor
        `documents`.
        """
        if self.sample_spans:
            return Instance(self._augmented.of_text(text, row, epoch))
        return Instance(self._whole.of_text(text))
