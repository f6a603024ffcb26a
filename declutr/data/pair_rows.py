"""Pairs of texts as rows: read from tables, tokenised, and made into views."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from allennlp.data import Field

from declutr.corpus import Paths, normalize_whitespace, text_pairs
from declutr.corpus.source_files import source_files
from declutr.corpus.tables import read_rows
from declutr.data.codecs import Codec
from declutr.data.document_rows import kept_by_path
from declutr.data.row_augmentation import TrainingAugmentation
from declutr.data.row_views import TextGroups
from declutr.sampling.document_selection import all_rows
from declutr.sampling.token_budget import UNITS, ExpectedTokens

logger = logging.getLogger(__name__)

_TEXTS_AT_ONCE = 4096  # The number of texts in one call of the tokenizer.


@dataclass(frozen=True)
class PairFiles:
    """A reader of pairs from tables.

    # Parameters

    columns : where the texts and the label of a pair are.
    kind : `"pairs"`, one per row; `"nli pairs"` or `"nli triplets"`, from rows of premise,
        hypothesis and label.
    label_of : makes a label of the value in its column; `None` for pairs without labels.
    header : whether the first line of TSV and CSV names the columns.
    encoding_errors : `"strict"` or `"replace"`, for text that is not UTF-8.
    """

    columns: text_pairs.Columns
    kind: Literal["pairs", "nli pairs", "nli triplets"]
    label_of: text_pairs.LabelOf | None
    header: bool
    encoding_errors: str

    def read(self, path: Paths) -> list[text_pairs.TextPair]:
        """Return the pairs at `path` as texts.

        # Raises

        `declutr.corpus.documents.SourceError` : if they cannot be read.
        """
        rows = read_rows(source_files(path), self.header, self.encoding_errors)
        if self.kind == "nli pairs":
            return text_pairs.read_nli_pairs(rows, self.columns, str(path))
        if self.kind == "nli triplets":
            return text_pairs.read_nli_triplets(rows, self.columns, str(path))
        return text_pairs.read_pairs(rows, self.columns, str(path), self.label_of)


class TokenizedPairs:
    """Tokenised pairs in memory; a text of several pairs is tokenised and stored once.

    # Parameters

    pairs : at least one pair. All have the same number of negatives, and all or none have a label.
    codec : how texts become arrays.
    """

    def __init__(self, pairs: Sequence[text_pairs.TextPair], codec: Codec) -> None:
        numbers: dict[str, int] = {}
        rows = ((pair.anchor, pair.positive, *pair.negatives) for pair in pairs)
        members = [[numbers.setdefault(text, len(numbers)) for text in row] for row in rows]
        self._members = np.array(members, dtype=np.int32)  # (n, 2 + K): numbers of texts
        arrays: list[np.ndarray] = []
        lengths: list[int] = []
        texts = list(numbers)
        for begin in range(0, len(texts), _TEXTS_AT_ONCE):
            encoded = codec.encode(texts[begin : begin + _TEXTS_AT_ONCE])
            arrays += encoded[0]
            lengths += encoded[1]
        self._values = np.concatenate(arrays)
        self._ends = np.cumsum([len(array) for array in arrays])
        labels = [pair.label for pair in pairs if pair.label is not None]
        kind = np.int64 if labels and isinstance(labels[0], int) else np.float32
        self._labels = np.array(labels, dtype=kind) if labels else None
        self.num_truncated = sum(map(codec.is_truncated, lengths))
        expected = ExpectedTokens(None, codec.limit, codec.num_special_tokens)
        counted = expected.units(np.array(lengths)) // UNITS
        self.num_tokens = counted[self._members].sum(axis=1)
        """The tokens of each pair in a batch, `(n,)`: with special tokens, after truncation."""

    def __len__(self) -> int:
        return len(self._members)

    @property
    def num_texts(self) -> int:
        """The number of different texts."""
        return len(self._ends)

    def texts(self, row: int) -> list[np.ndarray]:
        """Return the encoded anchor, positive and negatives of a pair, in this order."""
        return [
            self._values[self._ends[number - 1] if number else 0 : self._ends[number]]
            for number in self._members[row].tolist()
        ]

    def labels(self, rows: Sequence[int]) -> np.ndarray | None:
        """Return the labels of these pairs, `(len(rows),)`; `None` if pairs have no labels.

        Classes are int64, and scores are float32.
        """
        return None if self._labels is None else self._labels[list(rows)]


@dataclass(eq=False)
class PairRows:
    """A `RowSource` of pairs, held in memory; all of them are used.

    # Parameters

    files : the pairs as texts.
    codec : how texts become token ids.
    with_ids : whether `beside` gives `ids`, the number of each pair. It always gives labels.
    with_texts : whether texts are kept beside their token ids.
    """

    files: PairFiles
    codec: Codec
    with_ids: bool = False
    with_texts: bool = False

    @kept_by_path
    def texts(self, path: Paths) -> list[text_pairs.TextPair]:
        """Return the pairs at `path` as texts, reading them on the first call."""
        return self.files.read(path)

    @kept_by_path
    def corpus(self, path: Paths) -> TokenizedPairs:
        texts = self.texts(path) if self.with_texts else self.files.read(path)
        pairs = TokenizedPairs(texts, self.codec)
        logger.info(
            f"{path}: {len(pairs)} pairs of {pairs.num_texts} different texts, of which "
            f"{pairs.num_truncated} are cut."
        )
        return pairs

    def used(self, path: Paths) -> np.ndarray:
        return all_rows(len(self.corpus(path)))

    def beside(self, path: Paths, rows: Sequence[int]) -> dict[str, np.ndarray]:
        labels = self.corpus(path).labels(rows)
        beside: dict[str, np.ndarray] = {} if labels is None else {"labels": labels}
        if self.with_ids:
            beside["ids"] = np.array(rows, dtype=np.int64)
        return beside


@dataclass(eq=False)
class PairTexts(TextGroups):
    """The views of the reader "text_pairs": the anchor, positive and negatives of each pair.

    # Parameters

    source, codec : the pairs, and how their texts become token ids.
    augmentation : of anchors and positives, in training.
    """

    source: PairRows
    augmentation: TrainingAugmentation

    def __post_init__(self) -> None:
        self.draws_anew = self.augmentation.draws_anew

    def expected_tokens(self) -> ExpectedTokens:
        return ExpectedTokens(None, None, 0)  # `num_tokens` of pairs already counts all of this.

    def groups(self, path: Paths, rows: list[int], epoch: int) -> Sequence[Sequence[np.ndarray]]:
        pairs = self.source.corpus(path)
        groups = [pairs.texts(row) for row in rows]
        if not self.augmentation:
            return groups
        texts = self.source.texts(path)
        both = [(texts[row].anchor, texts[row].positive) for row in rows]
        made = self.augmentation(path, both, [(epoch, row) for row in rows])
        encoded, _ = self.codec.encode([text for two in made for text in two])
        return [[*encoded[2 * n : 2 * n + 2], *group[2:]] for n, group in enumerate(groups)]

    def of_texts(self, texts: Sequence[str]) -> dict[str, Field]:
        """Return the fields of an anchor, a positive and negatives that are not rows of a file."""
        return self.fields_of(self.codec.encode([normalize_whitespace(text) for text in texts])[0])
