"""Pairs of texts in memory, tokenised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from declutr.corpus.text_pairs import TextPair
from declutr.data.codecs import TokenCodec, WordPieceCodec
from declutr.data.rows.protocols import EncodedText

_TEXTS_AT_ONCE = 4096  # of a call of the tokenizer


class TokenizedPairs:
    """Pairs in memory, every text tokenised once, however many pairs it is part of.

    # Parameters

    pairs : at least one, all with as many negatives and all with a label, or none.
    codec : how texts become arrays.
    """

    def __init__(self, pairs: Sequence[TextPair], codec: WordPieceCodec | TokenCodec) -> None:
        numbers: dict[str, int] = {}
        self._members = np.array(
            [
                [
                    numbers.setdefault(text, len(numbers))
                    for text in (pair.anchor, pair.positive, *pair.negatives)
                ]
                for pair in pairs
            ],
            dtype=np.int32,
        )  # (n, 2 + K), of texts
        arrays: list[np.ndarray] = []
        lengths: list[int] = []
        texts = list(numbers)
        for begin in range(0, len(texts), _TEXTS_AT_ONCE):
            encoded = codec.encode(texts[begin : begin + _TEXTS_AT_ONCE])
            arrays += encoded[0]
            lengths += encoded[1]
        self._values = np.concatenate(arrays)
        self._ends = np.cumsum([len(array) for array in arrays])
        self._lengths = np.array(lengths)
        labels = [pair.label for pair in pairs if pair.label is not None]
        self._labels: np.ndarray | None = None
        if labels:
            kind = np.int64 if isinstance(labels[0], int) else np.float32
            self._labels = np.array(labels, dtype=kind)
        self.num_truncated = sum(map(codec.is_truncated, lengths))
        taken = self._lengths if codec.limit is None else np.minimum(self._lengths, codec.limit)
        # Where there are no special tokens a blank text is one token all the same.
        counted = np.maximum(taken + codec.num_special_tokens, 1)
        self.num_tokens = counted[self._members].sum(axis=1)
        """What each pair gives a batch, special tokens included and tails left out: `(n,)`."""

    def __len__(self) -> int:
        return len(self._members)

    @property
    def num_texts(self) -> int:
        """Different ones."""
        return len(self._lengths)

    @property
    def num_negatives(self) -> int:
        """Of each pair."""
        return self._members.shape[1] - 2

    def texts(self, row: int) -> list[EncodedText]:
        """Anchor, positive and negatives of a pair: the array of each, and its length in tokens."""
        return [
            (
                self._values[self._ends[number - 1] if number else 0 : self._ends[number]],
                int(self._lengths[number]),
            )
            for number in self._members[row].tolist()
        ]

    def labels(self, rows: Sequence[int]) -> np.ndarray | None:
        """Of these pairs: `(len(rows),)`, int64 classes or float32 scores; `None` without."""
        return None if self._labels is None else self._labels[list(rows)]
