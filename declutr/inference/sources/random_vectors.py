"""Random vectors of words and of sentences, as baselines for the scores of encoders."""

import hashlib
from typing import Any

import numpy as np

from declutr.inference.sources.source import EncoderError, NamedEncoder
from declutr.inference.sources.word_vectors import WordAverages


def hashed_vector(text: str, dimension: int, seed: int = 0) -> np.ndarray:
    """Return a pseudorandom vector `(d,)` that depends on the arguments alone.

    Its numbers are uniformly distributed with mean 0 and variance 1. They are computed with
    SHAKE-128, so that they are the same on every machine and with every release of numpy.

    # Parameters

    text : the text that the vector belongs to.
    dimension : the width d.
    seed : another seed gives another vector.
    """
    digest = hashlib.shake_128(f"{seed}\0{text}".encode("utf-8", "surrogatepass"))
    whole = np.frombuffer(digest.digest(4 * dimension), dtype="<u4").astype(np.float64)
    return ((whole + 0.5) / 2**31 - 1) * 3**0.5


class RandomWords(WordAverages):
    """A bag of words with a random vector for each word, which knows nothing of their meaning.

    # Parameters

    place : the dimension, as text.
    combine, tokens : as for `WordAverages`.
    seed : the seed of the vectors, as text.

    # Raises

    `EncoderError` : a value is out of range.
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
    """A random vector for each sentence, the baseline of chance.

    Equal sentences have equal vectors.

    # Parameters

    place : the dimension, as text.
    seed : the seed of the vectors, as text.

    # Raises

    `EncoderError` : a value is out of range.
    """

    dimension: int
    not_stored = "random vectors take no longer than reading them would"

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
