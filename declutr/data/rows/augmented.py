"""Texts, and others that an augmentation makes of them."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Field

from declutr.archives.safety.building import is_untrusted
from declutr.corpus.documents import SourceError, normalize_whitespace
from declutr.corpus.token_store import TokenStore
from declutr.data.augmentation.augmentation import Augmentation
from declutr.data.codecs import TokenCodec, WordPieceCodec
from declutr.data.collation import PackedSpans
from declutr.data.rows.documents import DocumentFiles, DocumentRows
from declutr.data.rows.protocols import EncodedText, Paths
from declutr.data.rows.sentences import TwoTexts
from declutr.sampling.row_draws import RowDraws
from declutr.sampling.token_budget import ExpectedTokens

logger = logging.getLogger(__name__)


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


class KeptTexts:
    """A `RowSource` of documents that keeps their texts in memory as well.

    # Parameters

    rows : the documents.
    files : the files that they are of.
    """

    def __init__(self, rows: DocumentRows, files: DocumentFiles) -> None:
        self._rows, self._files = rows, files
        self._texts: dict[str, RowTexts] = {}

    def corpus(self, path: Paths) -> TokenStore:
        return self._rows.corpus(path)

    def used(self, path: Paths) -> np.ndarray:
        self.texts(path)  # before there are workers, each of which would read them
        return self._rows.used(path)

    def beside(self, path: Paths, rows: Sequence[int]) -> dict[str, np.ndarray]:
        return self._rows.beside(path, rows)

    def texts(self, path: Paths) -> RowTexts:
        """The rows at `path` as they are, blank ones included; read on the first call.

        # Raises

        `declutr.corpus.documents.SourceError` : they cannot be read, or are not those that were
        tokenised.
        """
        key = str(path)
        if key not in self._texts:
            texts = RowTexts(self._files.texts(path))
            rows = len(self.corpus(path))
            if len(texts) != rows:
                raise SourceError(
                    f"{key}: {len(texts)} rows, but {rows} were tokenised: it changed while it was "
                    "being read. Start again when it is written."
                )
            self._texts[key] = texts
        return self._texts[key]


class AugmentedTexts:
    """The `RowViews` of a text and what an augmentation makes of it in an epoch.

    `anchors` and `positives` are `(1, L)`. What is made is tokenised while a batch is, in the
    workers of the loader.

    # Parameters

    source : the texts.
    augmentation : gets a text as it stands in its row. Where it leaves nothing to tokenise, the
        text itself is taken, which the log says once and `num_blank` counts.
    both : anchors are augmented as well, by draws of their own.
    codec : how texts become token ids.
    draws : what is drawn for a row.
    """

    def __init__(
        self,
        source: KeptTexts,
        augmentation: Augmentation,
        both: bool,
        codec: WordPieceCodec | TokenCodec,
        draws: RowDraws,
    ) -> None:
        self.source = source
        self.augmentation = augmentation
        self._both = both
        self._codec, self._draws = codec, draws
        self._untrusted = is_untrusted()
        self._num_blank = torch.zeros((), dtype=torch.int64).share_memory_()  # workers count too

    @property
    def draws_anew(self) -> bool:
        return self._draws.resample

    @property
    def num_blank(self) -> int:
        """How many augmentations left nothing; several workers may miss some of each other's."""
        return int(self._num_blank)

    def expected_tokens(self) -> ExpectedTokens:
        """Twice those of the text: what will become of it is not known.

        EDA makes texts of about the same length.
        """
        return TwoTexts(None, self._codec.limit, self._codec.num_special_tokens)

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        assert isinstance(self._codec, WordPieceCodec)
        anchors, positives = self._of_rows(path, rows, epoch)
        shape = (len(rows), 1)
        return {
            "anchors": self._codec.pack([ids for ids, _ in anchors], shape),
            "positives": self._codec.pack([ids for ids, _ in positives], shape),
        }

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        return self._fields(*self._of_rows(path, [int(row)], epoch))

    def of_text(self, text: str, row: int | None, epoch: int | None) -> dict[str, Field]:
        """The fields of a text that is no row; `RowDraws.key_of_text` says what is drawn."""
        key = self._draws.key_of_text(text, row, epoch)
        return self._fields(*self._augmented([text], self._encoded([text]), [key]))

    def _fields(
        self, anchors: Sequence[EncodedText], positives: Sequence[EncodedText]
    ) -> dict[str, Field]:
        (anchor,), (positive,) = anchors, positives
        return {
            name: self._codec.spans_field(values, [(0, length)])
            for name, (values, length) in (("anchors", anchor), ("positives", positive))
        }

    def _of_rows(
        self, path: Paths, rows: list[int], epoch: int
    ) -> tuple[list[EncodedText], list[EncodedText]]:
        corpus, texts = self.source.corpus(path), self.source.texts(path)
        whole = [(corpus[row], int(corpus.num_tokens[row])) for row in rows]
        return self._augmented([texts[row] for row in rows], whole, [(epoch, row) for row in rows])

    def _augmented(
        self, texts: list[str], whole: list[EncodedText], keys: Sequence[tuple[int, ...]]
    ) -> tuple[list[EncodedText], list[EncodedText]]:
        """Anchors and positives of these texts; keys are of what is drawn (`RowDraws.at`)."""
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
            rng = self._draws.at(*key)
            positives.append(self.augmentation(text, rng))
            if self._both:
                anchors.append(self.augmentation(text, rng))
        encoded = self._encoded(positives + anchors)  # a tokenizer is quicker with many at once
        made = [
            view if view[1] else self._instead(original)
            for view, original in zip(encoded, whole * (1 + self._both), strict=True)
        ]
        return (made[len(texts) :] if self._both else whole), made[: len(texts)]

    def _encoded(self, texts: list[str]) -> list[EncodedText]:
        arrays, lengths = self._codec.encode([normalize_whitespace(text) for text in texts])
        return list(zip(arrays, lengths, strict=True))

    def _instead(self, original: EncodedText) -> EncodedText:
        if not self._num_blank:
            logger.warning(
                "An augmentation left nothing of a text, which is taken as it is instead. Further "
                "ones are counted, not reported one by one."
            )
        self._num_blank += 1
        return original
