"""Fake encoders, and a search by plain loops to compare with."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from declutr.inference.text_model import Prompts


class FakeEncoder:
    """An encoder that sums a random vector for each word, and records the texts it embedded."""

    def __init__(self, dimension: int = 16, content: str = "a", place: str = "some/model") -> None:
        self.dimension, self.content, self.place = dimension, content, place
        self.truncated_texts = 0
        self.embedded: list[str] = []

    def describe(self) -> dict[str, Any]:
        return {"place": self.place, "content": self.content, "dtype": "float32"}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.embedded += texts
        return np.array([self._vector(text) for text in texts], dtype=np.float32)

    def _vector(self, text: str) -> np.ndarray:
        if text == "broken":
            return np.full(self.dimension, np.nan)
        return sum(map(self._of_word, text.split() or ["(blank)"]), np.zeros(self.dimension))

    def _of_word(self, word: str) -> np.ndarray:
        return _word_vector(f"{self.content}{word}", self.dimension)


class KilledEncoder(FakeEncoder):
    """A `FakeEncoder` whose process is interrupted after so many texts."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        if len(self.embedded) >= self.after:
            raise KeyboardInterrupt
        return super().__call__(texts)


class PromptedEncoder(FakeEncoder):
    """A `FakeEncoder` with prompts, as `declutr.Encoder` has them."""

    def __init__(
        self, named: dict[str, str], default: str | None = None, prompt: str | None = None
    ) -> None:
        super().__init__()
        self.prompts, self.prompt = Prompts(named, default), prompt

    def describe(self) -> dict[str, Any]:
        chosen = {} if self.prompt is None else {"prompt": self.prompt}
        return {**super().describe(), **chosen}

    def __call__(self, texts: Sequence[str], prompt: str | None = None) -> np.ndarray:
        own = self.prompts.default if self.prompt is None else self.prompt
        return super().__call__([(own if prompt is None else prompt) + text for text in texts])


@lru_cache(None)
def _word_vector(word: str, dimension: int) -> np.ndarray:
    seed = int(hashlib.sha256(word.encode()).hexdigest()[:8], 16)
    return np.random.default_rng(seed).normal(size=dimension)


def naive(encoder: FakeEncoder, lines: Sequence[str], query: str, k: int) -> list[tuple]:
    """Return the row numbers and cosines of the k nearest lines, computed by a plain loop."""

    def unit(text: str) -> list[float]:
        vector = encoder([text])[0].tolist()
        length = math.sqrt(math.fsum(x * x for x in vector))
        return [x / length for x in vector]

    wanted = unit(query)
    scored = []
    for row, line in enumerate(lines):
        if line.strip() and line != "broken":
            cosine = math.fsum(a * b for a, b in zip(wanted, unit(line), strict=True))
            scored.append((-round(cosine, 6), row))  # equal lines are equally near
    return [(row, -score) for score, row in sorted(scored)[:k]]


def some_lines(count: int, seed: int = 0, words: int = 40) -> list[str]:
    """Return lines of one to four words, some of which are blank, equal, or embed as NaN."""
    rng = np.random.default_rng(seed)
    lines = [
        " ".join(f"w{n}" for n in rng.integers(words, size=rng.integers(1, 5)))
        for _ in range(count)
    ]
    for row in range(5, count, 11):
        lines[row] = ["", "   ", "broken"][row % 3]
    return lines
