"""A text as the mean of vectors of its words."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_matrix

from declutr.inference.sources.source import EncoderError, EncoderSource

_WORD_OR_MARK = re.compile(r"\w+|[^\w\s]")
TOKENS: dict[str, Callable[[str], list[str]]] = {
    "split": str.split,
    "words": _WORD_OR_MARK.findall,
}
"""How a text becomes words. `split`: at white space alone, as SentEval does, whose data are mostly
tokenised; `words`: words and punctuation marks apart, for text as people write it."""


class WordAverages(EncoderSource):
    """Mean of word vectors, those without one left out; zeros where there is none at all.

    # Parameters

    tokens : a key of `TOKENS`.
    combine : `mean`, or `sum`.
    """

    def __init__(self, tokens: str = "split", combine: str = "mean") -> None:
        for name, value, known in (
            ("tokens", tokens, tuple(TOKENS)),
            ("combine", combine, ("mean", "sum")),
        ):
            if value not in known:
                raise EncoderError(
                    f"Expected {name} to be one of {', '.join(known)}, got {value!r}."
                )
        self._tokens, self._combine = tokens, combine
        self._counts = dict.fromkeys(("words", "unknown_words", "sentences_without_known_words"), 0)

    @abstractmethod
    def vectors_of(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Vectors `(k, d)` of different words, and which of them are known, `(k,)`."""

    def weights_of(self, words: list[str]) -> np.ndarray:
        """What each of different words counts for, `(k,)`."""
        return np.ones(len(words))

    def counts(self) -> dict[str, int]:
        return dict(self._counts)

    def __call__(self, sentences: list[str]) -> np.ndarray:
        tokenize = TOKENS[self._tokens]
        texts = [tokenize(sentence) for sentence in sentences]
        number: dict[str, int] = {}
        columns = np.array(
            [number.setdefault(word, len(number)) for words in texts for word in words], np.int64
        )
        rows = np.repeat(np.arange(len(texts)), [len(words) for words in texts])
        words = list(number)
        if not words:
            self._count(columns, rows, len(texts))
            return np.zeros((len(texts), self.dimension or 0))
        vectors, known = self.vectors_of(words)
        kept = known[columns]
        self._count(columns, rows[kept], len(texts))
        each = self.weights_of(words)[columns[kept]]
        shape = (len(texts), len(words))
        counts = csr_matrix((each, (rows[kept], columns[kept])), shape=shape)
        sums = counts @ vectors.astype(np.float64)  # (n, d)
        if self._combine == "sum":
            return sums
        return sums / np.bincount(rows[kept], minlength=len(texts)).clip(min=1)[:, None]

    def _count(self, columns: np.ndarray, known_rows: np.ndarray, sentences: int) -> None:
        self._counts["words"] += len(columns)
        self._counts["unknown_words"] += len(columns) - len(known_rows)
        self._counts["sentences_without_known_words"] += sentences - len(np.unique(known_rows))
