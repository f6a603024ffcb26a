"""The DatasetReader "augmented", which pairs each row of a corpus with an augmented text."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer

from declutr.corpus import Paths, normalize_whitespace
from declutr.corpus.documents import SourceError
from declutr.data.augmentations import Augmentation
from declutr.data.document_rows import DocumentRows, kept_by_path
from declutr.data.row_augmentation import RowAugmentation
from declutr.data.row_reader import RowReader
from declutr.data.row_views import TextGroups
from declutr.data.sentence_reader import SentenceSelection
from declutr.sampling.row_draws import RowDraws


@DatasetReader.register("augmented")
class AugmentedReader(RowReader):
    """A reader that pairs each text with an augmented text, drawn anew in every epoch.

    It serves EDA (Wei & Zou, 2019), and CERT (Fang et al., 2020) with a function that returns
    back-translations. If back-translations lie in a file beside their texts, use the reader
    "text_pairs" instead.

    It reads the same files as the reader "declutr". The texts are also kept in memory, and the
    augmented ones are tokenised while a batch is made, in the workers of the loader. What an
    augmentation draws depends on `seed`, the epoch and the row alone. While `sample_spans` is
    false, nothing is augmented.

    Fields: `anchors` `(1, L)`, a whole text, and `positives` `(1, L)`, the augmented text. With
    `with_ids` also `ids` and `documents`, as in the reader "sentences".

    # Parameters

    augmentation : takes the text as it stands in its row. If it returns a text without tokens, the
        original text becomes the positive; a warning is logged the first time, and
        `blank_augmentations` counts them.
    both : whether the anchors are augmented as well, with separate draws, since CERT contrasts two
        augmentations. An augmentation that draws nothing returns two equal texts.
    min_document_len : rows of fewer tokens are left out in training; at least 1.
    with_ids : as in the reader "sentences".
    others : the parameters of every reader (`declutr.data.row_reader.RowReader`).

    # Raises

    `ConfigurationError` : if `min_document_len` is below 1 or no row is left to train on. When the
        first text is augmented: if the augmentation raises it, or if the reader comes from an
        untrusted archive, because augmentations may read files and import modules.
    `declutr.corpus.documents.SourceError` : if the corpus cannot be read.
    """

    _training: "AugmentedTexts"

    def __init__(
        self,
        augmentation: Augmentation,
        tokenizer: Optional[Tokenizer] = None,
        token_indexers: Optional[dict[str, TokenIndexer]] = None,
        both: bool = False,
        min_document_len: int = 1,
        *,
        with_ids: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(tokenizer, token_indexers, **others)
        choose = SentenceSelection(min_document_len, self._codec.limit).rows
        rows = RowsWithTexts(self._files, choose, with_ids, with_documents=with_ids)
        self._training = AugmentedTexts(rows, self._codec, augmentation, both, self._draws)

    @property
    def blank_augmentations(self) -> int:
        """The number of augmentations that left nothing to tokenise.

        Workers count without a lock, so that a few may be missed.
        """
        return self._training.of_rows.num_blank

    def texts(self, path: Paths) -> "RowTexts":
        """Return the rows at `path` as texts, blank ones included, reading them on first call."""
        return self._training.source.texts(path)

    def text_to_instance(  # type: ignore[override]
        self, text: str, row: Optional[int] = None, epoch: Optional[int] = None
    ) -> Instance:
        """Make an instance of one text, which is not part of a corpus.

        While `sample_spans` is true, the text is augmented with other draws at each call, which
        depend on the same things as those of the reader "declutr". If `row` and `epoch` are given,
        the draws are those of this row of a corpus in this epoch. The instance has no `ids` and no
        `documents`.
        """
        if self.sample_spans:
            return Instance(self._training.of_text(text, row, epoch))
        return self._whole_text(text)


class RowTexts:
    """A list of texts in memory, stored as one buffer of bytes and the end of each text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])
        for text in texts:
            self._bytes += text.encode("utf-8", "surrogatepass")
            self._ends.append(len(self._bytes))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, row: int) -> str:
        part = self._bytes[self._ends[row] : self._ends[row + 1]]
        return part.decode("utf-8", "surrogatepass")


class RowsWithTexts(DocumentRows):
    """A source of documents that also keeps their texts in memory."""

    def used(self, path: Paths) -> np.ndarray:
        self.texts(path)  # Read them before workers start, or each worker would read them again.
        return super().used(path)

    @kept_by_path
    def texts(self, path: Paths) -> RowTexts:
        """Return the rows at `path` as texts, blank ones included, reading them on first call.

        # Raises

        `declutr.corpus.documents.SourceError` : if they cannot be read, or if their number differs
            from that of the tokenised rows.
        """
        texts = RowTexts(self.files.texts(path))
        rows = len(self.corpus(path))
        if len(texts) != rows:
            raise SourceError(
                f"{path}: {len(texts)} rows, but {rows} were tokenised: it changed while it was "
                "being read. Start again when it is written."
            )
        return texts


@dataclass(eq=False)
class AugmentedTexts(TextGroups):
    """The views of the reader "augmented": a text and an augmentation of it, drawn for each epoch.

    The augmented text is tokenised while a batch is made, in the workers of the loader. In counts
    of tokens it is taken to be as long as the original, because EDA changes lengths little.

    # Parameters

    source, codec : the texts, and how they become token ids.
    augmentation : takes a text as it stands in its row. If it returns a text without tokens, the
        original is used, which is logged once and counted in `of_rows.num_blank`.
    both : whether the anchors are augmented as well, with separate draws.
    draws : the random draws of each row.
    """

    source: RowsWithTexts
    augmentation: Augmentation
    both: bool
    draws: RowDraws

    def __post_init__(self) -> None:
        self.draws_anew = self.draws.resample
        self.of_rows = RowAugmentation(self.augmentation, self.draws)

    def groups(self, path: Paths, rows: list[int], epoch: int) -> Sequence[Sequence[np.ndarray]]:
        corpus, texts = self.source.corpus(path), self.source.texts(path)
        keys = [(epoch, row) for row in rows]
        return self._augmented([texts[row] for row in rows], [corpus[row] for row in rows], keys)

    def of_text(self, text: str, row: Optional[int], epoch: Optional[int]) -> dict[str, Field]:
        """Return the fields of one text that is not a row of a corpus.

        `RowDraws.key_of_text` decides which numbers are drawn for it.
        """
        key = self.draws.key_of_text(text, row, epoch)
        whole, _ = self.codec.encode([normalize_whitespace(text)])
        (group,) = self._augmented([text], whole, [key])
        return self.fields_of(group)

    def _augmented(
        self, texts: list[str], whole: list[np.ndarray], keys: Sequence[tuple[int, ...]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the anchor and the positive of each text.

        # Parameters

        texts : the texts as they stand in their rows.
        whole : the token ids of each text.
        keys : for each text, the arguments of `RowDraws.at`.
        """
        made = self.of_rows([[text] * (1 + self.both) for text in texts], keys)
        # Tokenizers are faster with many texts in one call.
        encoded, lengths = self.codec.encode([text for row in made for text in row])
        originals = [own for own in whole for _ in range(1 + self.both)]
        encodings = zip(encoded, lengths, originals, strict=True)
        views = [view if n else self.of_rows.instead(own) for view, n, own in encodings]
        positives = views[:: 1 + self.both]
        return list(zip(views[1::2] if self.both else whole, positives, strict=True))
