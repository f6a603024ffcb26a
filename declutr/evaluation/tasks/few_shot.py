"""Few-shot classification: a classifier that is trained on a few labelled texts of each class."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Protocol, Vectors
from declutr.evaluation.tasks.labelled_text import ClassificationTask, LabelledText, Part
from declutr.evaluation.tasks.labelled_vectors import LabelledVectors, texts_of, unconverged

SHOTS = (8, 16, 32, 64)
"""The numbers of labelled texts of each class."""
DRAWS = 10
"""The number of times that the labelled texts are drawn."""
ITERATIONS = 100
"""The maximum number of iterations of the classifier, as in MTEB."""


class _Split(NamedTuple):
    """The part to draw from and the part to test on, with the rows of each."""

    pool: Part
    pool_rows: np.ndarray
    test: Part
    test_rows: np.ndarray


class FewShot(LabelledVectors):
    """The accuracy of logistic regression on few labelled texts of each class, as MTEB has it.

    The texts are drawn several times; those of fewer shots are among those of more. Accuracies are
    means over draws, with the standard deviation over draws beside them. Without a test part, the
    texts are drawn from one half of the data, and the other half is the test.
    """

    kind = "few-shot"

    def __init__(
        self,
        source: ClassificationTask,
        protocol: Protocol,
        shots: Sequence[int] = SHOTS,
        draws: int = DRAWS,
    ) -> None:
        self._shots = sorted(shots)
        super().__init__(source, protocol, main=f"{self._shots[0]}-shot accuracy")
        self._draws = draws

    def check(self, data: LabelledText) -> None:
        if max(np.bincount(data.train.labels)) < 2:
            raise BrokenData(f"{self.kind}: expected a class of two texts or more.")
        split = self._split_of(data)
        labels = np.array(split.pool.labels)[split.pool_rows]
        if len(np.unique(labels)) < 2:
            raise BrokenData(
                f"{self.kind}: half of the texts, which draws are from, have one class alone. "
                "Expected two classes of two texts or more, or a test file."
            )

    @cached_property
    def _split(self) -> _Split:
        return self._split_of(self.data)

    @staticmethod
    def _split_of(data: LabelledText) -> _Split:
        train, test = data.train, data.test
        if test is not None:
            return _Split(train, np.arange(len(train)), test, np.arange(len(test)))
        from declutr.evaluation.classifiers.cross_validation import NESTED_SEED, stratified

        pool, left_out = stratified(train.labels, 2, NESTED_SEED)[0]
        return _Split(train, pool, train, left_out)

    @cached_property
    def _drawn(self) -> dict[int, list[np.ndarray]]:
        """For each number of shots, the rows of the pool that each draw takes."""
        labels = np.array(self._split.pool.labels)[self._split.pool_rows]
        most = np.bincount(labels).max()
        used = [count for count in self._shots if count <= most] or self._shots[:1]
        found: dict[int, list[np.ndarray]] = {count: [] for count in (*self._shots[:1], *used)}
        order = np.arange(len(labels))
        for _ in range(self._draws):
            # As in MTEB, each draw shuffles the order of the last one, always with the same seed.
            np.random.RandomState(self._seed).shuffle(order)
            places = _places_in_class(labels[order])
            for count, rows in found.items():
                rows.append(self._split.pool_rows[order[places < count]])
        return found

    def sentences(self) -> list[str]:
        drawn = np.unique(np.concatenate([rows for of in self._drawn.values() for rows in of]))
        split = self._split
        return [*texts_of(split.pool, drawn), *texts_of(split.test, split.test_rows)]

    def scores(self, vectors: Vectors) -> list[Score]:
        from sklearn.linear_model import LogisticRegression

        split = self._split
        tested = self.features(split.test, split.test_rows, vectors)
        gold = np.array(split.test.labels)[split.test_rows]
        labels = np.array(split.pool.labels)
        found = []
        for count, draws in self._drawn.items():
            right = np.zeros((len(draws), len(gold)))
            for number, rows in enumerate(draws):
                model = LogisticRegression(max_iter=ITERATIONS, random_state=self._seed)
                with unconverged():
                    model.fit(self.features(split.pool, rows, vectors), labels[rows])
                right[number] = model.predict(tested) == gold
            of_draws = {"value": right.mean(axis=1)}
            found += [
                Score(f"{count}-shot accuracy", "mean", {"value": right.mean(axis=0)}),
                Score(f"{count}-shot deviation", "deviation", of_draws),
            ]
        return found

    def notes(self) -> list[str]:
        split = self._split
        counts = np.bincount(np.array(split.pool.labels)[split.pool_rows])
        half = "" if self.data.test is not None else " (halves of the data)"
        notes = [
            f"{self._draws} draws from {len(split.pool_rows):,} texts of {self.data.classes} "
            f"classes, tested on {len(split.test_rows):,}{half}; deviations are over draws."
        ]
        short = {count: int((counts < count).sum()) for count in self._drawn}
        told = [f"{few} with fewer than {count}" for count, few in short.items() if few]
        return [*notes, *([f"Classes taken whole: {', '.join(told)} texts."] if told else [])]


def _places_in_class(labels: np.ndarray) -> np.ndarray:
    """Return for each item how many of its class come before it, `(n,)`."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels)
    places = np.empty(len(labels), dtype=np.int64)
    places[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places
