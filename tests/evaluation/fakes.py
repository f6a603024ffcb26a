"""Small tasks and encoders with known answers, for tests of a run."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import MissingData, Task, Vectors


def hashed(texts: Sequence[str], dimension: int = 4) -> np.ndarray:
    """Return embeddings `(n, dimension)` that depend on the text alone."""
    draws = [np.random.default_rng(zlib.crc32(text.encode())) for text in texts]
    rows = [draw.normal(size=dimension) for draw in draws]
    return np.array(rows, dtype=np.float32).reshape(len(rows), dimension)


class Encoder:
    """A named encoder, as `declutr.inference.sources` opens them, that records its texts."""

    def __init__(
        self,
        name: str = "hashed",
        encode: Callable[[Sequence[str]], np.ndarray] = hashed,
        fingerprint: str = "a",
    ) -> None:
        self.name, self.spec, self.not_stored = name, f"fake:{name}", None
        self._encode, self._fingerprint = encode, fingerprint
        self.seen: list[str] = []

    def __call__(self, sentences: list[str]) -> np.ndarray:
        self.seen += sentences
        return self._encode(sentences)

    def describe(self) -> dict[str, object]:
        return {"kind": "fake", "dimension": 4, "fingerprint": self._fingerprint}

    def computed_with(self) -> dict[str, str]:
        return {"fakes": "1.0"}

    def counts(self) -> dict[str, int]:
        return {"truncated_texts": 0}


class Positive(Task):
    """A task that predicts whether the first number of an embedding is positive.

    Its accuracy is at chance, and equal every time.
    """

    def __init__(self, name: str, texts: Sequence[str], group: str = "downstream") -> None:
        super().__init__(name, group, "accuracy")
        self.texts = list(texts)
        self.gold = np.arange(len(self.texts)) % 2

    def sentences(self) -> list[str]:
        return self.texts

    def scores(self, vectors: Vectors) -> list[Score]:
        items = {"predicted": (vectors(self.texts)[:, 0] > 0).astype(int), "gold": self.gold}
        dev = Score("dev_accuracy", "mean", {"value": np.ones(2)})
        return [Score("accuracy", "accuracy", items), dev]

    def notes(self) -> list[str]:
        return [f"{len(self.texts)} sentences"]


class Similar(Task):
    """A similarity task with gold scores and cosines of pairs in two subsets."""

    def __init__(self, name: str = "STS12", pairs: int = 60) -> None:
        super().__init__(name, "sts", "all Spearman")
        self.first = [f"{name} first {number}" for number in range(pairs)]
        self.second = [f"{name} second {number}" for number in range(pairs)]
        self.gold = np.linspace(0, 5, pairs)

    def sentences(self) -> list[str]:
        return self.first + self.second

    def scores(self, vectors: Vectors) -> list[Score]:
        first, second = vectors(self.first), vectors(self.second)
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        items = {
            "predicted": (first * second).sum(axis=1) / np.where(lengths > 0, lengths, 1),
            "gold": self.gold,
            "subset": np.arange(len(self.gold)) % 2,
        }
        names = {"all Spearman": "spearman_all", "mean Spearman": "spearman_mean"}
        names |= {"wmean Pearson": "pearson_wmean", "part Spearman": "spearman_all"}
        return [Score(name, statistic, items) for name, statistic in names.items()]


class Spread(Task):
    """A geometry task with two scores, and a collapse alarm if all embeddings are equal."""

    def __init__(self, texts: Sequence[str]) -> None:
        super().__init__("geometry", "geometry", "uniformity")
        self.texts = list(texts)
        self.alarm: list[str] = []

    def sentences(self) -> list[str]:
        return self.texts

    def scores(self, vectors: Vectors) -> list[Score]:
        x = vectors(self.texts).astype(float)
        alarm = ["COLLAPSE: all embeddings point the same way."]
        self.alarm = [] if np.ptp(x, 0).any() else alarm
        return [
            Score("alignment", "plain_mean", {"value": np.abs(x).mean(axis=1)}),
            Score("uniformity", "plain_mean", {"value": -np.square(x).mean(axis=1)}),
        ]

    def notes(self) -> list[str]:
        return self.alarm


class Absent(Task):
    """A task without data."""

    def __init__(self, name: str = "absent", group: str = "downstream") -> None:
        super().__init__(name, group, "accuracy")

    def sentences(self) -> list[str]:
        raise MissingData(f"{self.name}.txt is not there.")

    def scores(self, vectors: Vectors) -> list[Score]:
        raise AssertionError("there is nothing to score")


class Failing(Positive):
    """A task that raises when it is scored, or when its sentences are read."""

    def __init__(self, error: BaseException, name: str = "failing", reading: bool = False) -> None:
        super().__init__(name, ["a", "b"])
        self.error, self.reading = error, reading

    def sentences(self) -> list[str]:
        if self.reading:
            raise self.error
        return super().sentences()

    def scores(self, vectors: Vectors) -> list[Score]:
        raise self.error
