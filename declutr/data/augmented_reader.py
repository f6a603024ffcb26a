"""The DatasetReader "augmented": rows of a corpus, each a text, and another text made of it."""

import logging
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer

from declutr.archives.safety.building import is_untrusted
from declutr.corpus import Paths, normalize_whitespace
from declutr.corpus.documents import SourceError
from declutr.data.augmentations import Augmentation
from declutr.data.document_rows import DocumentRows, kept_by_path
from declutr.data.row_reader import RowReader
from declutr.data.row_views import TextGroups
from declutr.data.sentence_reader import SentenceSelection
from declutr.sampling.row_draws import RowDraws

logger = logging.getLogger(__name__)


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
        """How many augmentations left nothing; several workers may miss some of each other's."""
        return self._training.num_blank

    def texts(self, path: Paths) -> "RowTexts":
        """The rows at `path` as they are, blank ones included; read on the first call."""
        return self._training.source.texts(path)

    def text_to_instance(  # type: ignore[override]
        self, text: str, row: Optional[int] = None, epoch: Optional[int] = None
    ) -> Instance:
        """The instance of a text; while texts are augmented, with other draws at each call.

        Draws depend on what those of the reader "declutr" do; with `row` and `epoch`, they are
        those of this row of a corpus in this epoch. It is of no corpus, and has neither `ids` nor
        `documents`.
        """
        if self.sample_spans:
            return Instance(self._training.of_text(text, row, epoch))
        return self._whole_text(text)


class RowTexts:
    """Texts in memory, as they are: their bytes end to end, and where each ends."""

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
    """Documents of which the texts are kept in memory as well."""

    def used(self, path: Paths) -> np.ndarray:
        self.texts(path)  # before there are workers, each of which would read them
        return super().used(path)

    @kept_by_path
    def texts(self, path: Paths) -> RowTexts:
        """The rows at `path` as they are, blank ones included; read on the first call.

        # Raises

        `declutr.corpus.documents.SourceError` : they cannot be read, or are not those that were
        tokenised.
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
    """A text and what an augmentation makes of it in an epoch.

    What is made is tokenised while a batch is, in the workers of the loader. It counts as being as
    long as the text: EDA makes texts of about the same length.

    # Parameters

    source, codec : the texts, and how they become token ids.
    augmentation : gets a text as it stands in its row. Where it leaves nothing to tokenise, the
        text itself is taken, which the log says once and `num_blank` counts.
    both : anchors are augmented as well, by draws of their own.
    draws : what is drawn for a row.
    """

    source: RowsWithTexts
    augmentation: Augmentation
    both: bool
    draws: RowDraws

    def __post_init__(self) -> None:
        self.draws_anew = self.draws.resample
        self._untrusted = is_untrusted()
        self._num_blank = torch.zeros((), dtype=torch.int64).share_memory_()  # workers count too

    @property
    def num_blank(self) -> int:
        """How many augmentations left nothing; several workers may miss some of each other's."""
        return int(self._num_blank)

    def groups(self, path: Paths, rows: list[int], epoch: int) -> Sequence[Sequence[np.ndarray]]:
        corpus, texts = self.source.corpus(path), self.source.texts(path)
        keys = [(epoch, row) for row in rows]
        return self._augmented([texts[row] for row in rows], [corpus[row] for row in rows], keys)

    def of_text(self, text: str, row: Optional[int], epoch: Optional[int]) -> dict[str, Field]:
        """The fields of a text that is no row; `RowDraws.key_of_text` says what is drawn."""
        key = self.draws.key_of_text(text, row, epoch)
        whole, _ = self.codec.encode([normalize_whitespace(text)])
        (group,) = self._augmented([text], whole, [key])
        return self.fields_of(group)

    def _augmented(
        self, texts: list[str], whole: list[np.ndarray], keys: Sequence[tuple[int, ...]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Anchor and positive of each text; keys are of what is drawn (`RowDraws.at`)."""
        if self._untrusted:
            raise ConfigurationError(
                "This dataset reader is of an archive that was opened without trust, and its "
                "augmentation may read files and import modules that the archive names. Set "
                "sample_spans to False for whole texts, or, if you made the archive yourself, open "
                "it with trust=True (--trust)."
            )
        positives: list[str] = []
        anchors: list[str] = []
        for text, key in zip(texts, keys, strict=True):
            rng = self.draws.at(*key)
            positives.append(self.augmentation(text, rng))
            if self.both:
                anchors.append(self.augmentation(text, rng))
        made = [normalize_whitespace(text) for text in positives + anchors]
        encoded, lengths = self.codec.encode(made)  # a tokenizer is quicker with many at once
        views = [
            view if length else self._instead(original)
            for view, length, original in zip(
                encoded, lengths, whole * (1 + self.both), strict=True
            )
        ]
        count = len(texts)
        return list(zip(views[count:] if self.both else whole, views[:count], strict=True))

    def _instead(self, original: np.ndarray) -> np.ndarray:
        if not self._num_blank:
            logger.warning(
                "An augmentation left nothing of a text, which is taken as it is instead. Further "
                "ones are counted, not reported one by one."
            )
        self._num_blank += 1
        return original
