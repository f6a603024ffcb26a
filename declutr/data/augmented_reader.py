"""The DatasetReader "augmented": rows of a corpus, each a text, and another text made of it."""

import logging
from array import array
from collections.abc import Iterable, Sequence
from typing import Optional

import numpy as np
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import DatasetReader, Field, Instance, TokenIndexer, Tokenizer

from declutr.corpus.documents import (
    PathLike,
    SourceError,
    normalize_whitespace,
    read_documents,
    source_files,
)
from declutr.data.augmentation.augmentation import Augmentation
from declutr.data.codecs import WordPieceCodec
from declutr.data.collation import PackedBatch
from declutr.data.sentence_reader import PairTokens, SentenceReader
from declutr.sampling.token_budget import ExpectedTokens
from declutr.system.untrusted_parts import is_untrusted

logger = logging.getLogger(__name__)

_Encoded = tuple[np.ndarray, int]  # a text as its codec has it, and its length in tokens


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


@DatasetReader.register("augmented")
class AugmentedReader(SentenceReader):
    """Texts, one a row, each beside another that an augmentation makes of it, anew every epoch.

    For EDA (Wei & Zou, 2019) and for CERT (Fang et al., 2020), where a function of yours gives the
    back-translations. If they lie in a file beside their texts, the reader "text_pairs" reads both.

    Reads what the reader "declutr" reads. Texts are kept in memory as well, and augmented ones are
    tokenised while a batch is made, in the workers of the loader. What an augmentation draws
    depends on `seed`, the epoch and the row alone: not on workers, processes, or where a run was
    resumed.

    While `sample_spans` is false, as predictor and Encoder set it, an instance is a whole row,
    blank rows included, as of the reader "declutr", and nothing is augmented.

    Fields: `anchors` `(1, L)`, a text whole, and `positives` `(1, L)`, what became of it. With
    `with_ids` also `ids` and `documents`, as of the reader "sentences".

    # Parameters

    augmentation : gets the text as it stands in its row. Where it leaves nothing to tokenise, the
        text itself is taken, which the log says once and `blank_augmentations` counts.
    tokenizer, token_indexers : as for the reader "declutr". `max_length` of the tokenizer is where
        texts are cut, augmented ones too.
    both : whether anchors are augmented as well, by draws of their own: CERT contrasts two
        augmentations. One that draws nothing makes two equal texts.
    min_document_len : rows of fewer tokens, at least 1, are left out in training.
    resample : augment anew every epoch. False repeats the first one, as validation wants.
    seed : of the augmentations.
    text_key, encoding_errors, cache_dir, max_instances, serialization_dir, with_ids : as for
        the reader "sentences".

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
            min_document_len=min_document_len,
            resample=resample,
            seed=seed,
            text_key=text_key,
            encoding_errors=encoding_errors,
            cache_dir=cache_dir,
            max_instances=max_instances,
            serialization_dir=serialization_dir,
            with_ids=with_ids,
        )
        self._augmentation = augmentation
        self._both = both
        self._untrusted = is_untrusted()
        self._texts: dict[str, RowTexts] = {}
        self._num_blank = torch.zeros((), dtype=torch.int64).share_memory_()  # workers count too

    @property
    def draws_anew(self) -> bool:
        """Whether instances differ from epoch to epoch, so that keeping them is a mistake."""
        return self.sample_spans and self._resample

    @property
    def blank_augmentations(self) -> int:
        """How many augmentations left nothing; several workers may miss some of each other's."""
        return int(self._num_blank)

    def documents(self, path: PathLike | Sequence[PathLike]) -> np.ndarray:
        """The rows that give instances, in order."""
        if self.sample_spans:
            self.texts(path)  # before there are workers, each of which would read them
        return super().documents(path)

    def texts(self, path: PathLike | Sequence[PathLike]) -> RowTexts:
        """The rows at `path` as they are, blank ones included; read on the first call.

        # Raises

        `declutr.corpus.documents.SourceError` : they cannot be read, or are not those that were
        tokenised.
        """
        key = str(path)
        if key not in self._texts:
            texts = RowTexts(read_documents(source_files(path), **self._reading))
            rows = len(self.corpus(path))
            if len(texts) != rows:
                raise SourceError(
                    f"{key}: {len(texts)} rows, but {rows} were tokenised: it changed while it was "
                    "being read. Start again when it is written."
                )
            self._texts[key] = texts
        return self._texts[key]

    def expected_tokens(self) -> ExpectedTokens:
        """How many tokens, special ones included, a row gives a batch, by its length.

        While training, twice those of the text: what will become of it is not known. EDA makes
        texts of about the same length.
        """
        if not self.sample_spans:
            return super().expected_tokens()
        return PairTokens(None, self._codec.limit, self._codec.num_special_tokens)

    # ------------------------------------------------------------------------------- batches

    def packed(
        self, path: PathLike | Sequence[PathLike], rows: Iterable[int], epoch: int = 0
    ) -> PackedBatch:
        """The batch of these rows in one epoch; unfolded, that of their instances, collated."""
        if not self.sample_spans:
            return super().packed(path, rows, epoch)
        assert isinstance(self._codec, WordPieceCodec)
        rows = [int(row) for row in rows]
        anchors, positives = self._views_of_rows(path, rows, epoch)
        shape = (len(rows), 1)
        return PackedBatch(
            {
                "anchors": self._codec.pack([ids for ids, _ in anchors], shape),
                "positives": self._codec.pack([ids for ids, _ in positives], shape),
            },
            self._beside(path, rows),
        )

    # ----------------------------------------------------------------------------- instances

    def instance(self, path: PathLike | Sequence[PathLike], row: int, epoch: int = 0) -> Instance:
        """The instance of one row of the corpus in one epoch."""
        if not self.sample_spans:
            return super().instance(path, row, epoch)
        (anchor,), (positive,) = self._views_of_rows(path, [int(row)], epoch)
        return Instance({**self._view_fields(anchor, positive), **self._beside_fields(path, row)})

    def text_to_instance(  # type: ignore[override]
        self, text: str, row: Optional[int] = None, epoch: Optional[int] = None
    ) -> Instance:
        """The instance of a text; while texts are augmented, with other draws at each call.

        Draws depend on what those of the reader "declutr" do; with `row` and `epoch`, they are
        those of this row of a corpus in this epoch. It is of no corpus, and has neither `ids` nor
        `documents`.
        """
        if not self.sample_spans:
            return super().text_to_instance(text)
        key = self._key_of_text(text, row, epoch)
        (anchor,), (positive,) = self._views([text], self._encoded([text]), [key])
        return Instance(self._view_fields(anchor, positive))

    def _view_fields(self, anchor: _Encoded, positive: _Encoded) -> dict[str, Field]:
        return {
            name: self._codec.spans_field(values, [(0, length)])
            for name, (values, length) in (("anchors", anchor), ("positives", positive))
        }

    def _views_of_rows(
        self, path: PathLike | Sequence[PathLike], rows: list[int], epoch: int
    ) -> tuple[list[_Encoded], list[_Encoded]]:
        corpus, texts = self.corpus(path), self.texts(path)
        whole = [(corpus[row], int(corpus.num_tokens[row])) for row in rows]
        return self._views([texts[row] for row in rows], whole, [(epoch, row) for row in rows])

    def _views(
        self, texts: list[str], whole: list[_Encoded], keys: Sequence[tuple[int, ...]]
    ) -> tuple[list[_Encoded], list[_Encoded]]:
        """Anchors and positives of these texts; keys are of what is drawn (`_rng`)."""
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
            rng = self._rng(*key)
            positives.append(self._augmentation(text, rng))
            if self._both:
                anchors.append(self._augmentation(text, rng))
        encoded = self._encoded(positives + anchors)  # a tokenizer is quicker with many at once
        made = [
            view if view[1] else self._instead(original)
            for view, original in zip(encoded, whole * (1 + self._both), strict=True)
        ]
        return (made[len(texts) :] if self._both else whole), made[: len(texts)]

    def _encoded(self, texts: list[str]) -> list[_Encoded]:
        arrays, lengths = self._codec.encode([normalize_whitespace(text) for text in texts])
        return list(zip(arrays, lengths, strict=True))

    def _instead(self, original: _Encoded) -> _Encoded:
        if not self._num_blank:
            logger.warning(
                "An augmentation left nothing of a text, which is taken as it is instead. Further "
                "ones are counted, not reported one by one."
            )
        self._num_blank += 1
        return original
