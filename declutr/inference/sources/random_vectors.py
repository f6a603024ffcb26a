"""Vectors that mean nothing, for what scores are worth: of words, and of whole sentences."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from declutr.inference.sources.source import EncoderError, NamedEncoder
from declutr.inference.sources.word_vectors import WordAverages


def hashed_vector(text: str, dimension: int, seed: int = 0) -> np.ndarray:
    """Return a vector `(d,)` that looks random and depends on the arguments alone.

    Its numbers are uniform, of mean 0 and variance 1, and come from SHAKE-128: the same on every
    machine and with every release of numpy.
    """
    digest = hashlib.shake_128(f"{seed}\0{text}".encode("utf-8", "surrogatepass"))
    whole = np.frombuffer(digest.digest(4 * dimension), dtype="<u4").astype(np.float64)
    return ((whole + 0.5) / 2**31 - 1) * 3**0.5


class RandomWords(WordAverages):
    """A random vector for each word: what a bag of words can do without any knowledge of words.

    # Parameters

    place : the dimension.
    combine, tokens : as for `WordAverages`.
    seed : of the vectors.
    """

    def __init__(
        self, place: str, *, combine: str = "mean", tokens: str = "split", seed: str = "0"
    ) -> None:
        super().__init__(tokens, combine)
        self.dimension, self._seed = _whole("dimension", place, 1), _whole("seed", seed, 0)

    def vectors_of(self, words: list[str]) -> tuple[np.ndarray, np.ndarray]:
        vectors = np.stack([hashed_vector(word, self.dimension, self._seed) for word in words])
        return vectors, np.ones(len(words), dtype=bool)

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "random word vectors",
            "place": str(self.dimension),
            "pooling": self._combine,
            "tokens": self._tokens,
            "seed": self._seed,
            "dimension": self.dimension,
        }


class RandomSentences(NamedEncoder):
    """A random vector for each sentence: chance, but for a sentence that comes twice.

    # Parameters

    place : the dimension.
    seed : of the vectors.
    """

    dimension: int

    def __init__(self, place: str, *, seed: str = "0") -> None:
        self.dimension, self._seed = _whole("dimension", place, 1), _whole("seed", seed, 0)

    def embed(self, sentences: list[str]) -> np.ndarray:
        return np.stack([hashed_vector(text, self.dimension, self._seed) for text in sentences])

    def settings(self) -> dict[str, Any]:
        return {
            "kind": "random sentence vectors",
            "place": str(self.dimension),
            "seed": self._seed,
            "dimension": self.dimension,
        }


def _whole(name: str, text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise EncoderError(f"Expected a {name} of at least {least}, got {text!r}.")
    return int(text)
