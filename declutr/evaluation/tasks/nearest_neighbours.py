"""Classification by nearest neighbours, which trains nothing."""

from collections.abc import Sequence

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import BrokenData, Protocol, Vectors
from declutr.evaluation.tasks.labelled_text import ClassificationTask, LabelledText
from declutr.evaluation.tasks.labelled_vectors import LabelledVectors, texts_of
from declutr.evaluation.tasks.retrieval import nearest

NEIGHBOURS = (1, 5, 10)
"""The numbers of neighbours."""
USUAL = 5
"""The number of neighbours of the main score, if it is among those."""


class NearestNeighbours(LabelledVectors):
    """The accuracy of the most frequent class among the nearest texts, by cosine.

    Among equally frequent classes, the one with the nearest text is taken. Neighbours are texts of
    the training part; without a test part, they are all other texts.
    """

    kind = "knn"

    def __init__(
        self,
        source: ClassificationTask,
        protocol: Protocol,
        neighbours: Sequence[int] = NEIGHBOURS,
    ) -> None:
        main = USUAL if USUAL in neighbours else min(neighbours)
        super().__init__(source, protocol, main=f"{main}-NN accuracy")
        self._neighbours = sorted(neighbours)

    def check(self, data: LabelledText) -> None:
        others = len(data.train) - (data.test is None)
        if others < self._neighbours[-1]:
            raise BrokenData(
                f"{self.kind}: expected at least {self._neighbours[-1]} other texts as neighbours, "
                f'got {others}. Give fewer as "neighbours".'
            )

    def sentences(self) -> list[str]:
        parts = {id(part): part for part in (self.data.train, self.data.tested)}
        return [t for part in parts.values() for t in texts_of(part, range(len(part)))]

    def scores(self, vectors: Vectors) -> list[Score]:
        train, test = self.data.train, self.data.tested
        known = self.features(train, range(len(train)), vectors)
        asked = known if test is train else self.features(test, range(len(test)), vectors)
        itself = {row: row for row in range(len(train))} if test is train else None
        found = nearest(asked, known, self._neighbours[-1], itself)
        labels = np.array(train.labels)[found]  # (q, k)
        gold = np.array(test.labels)
        votes = {count: voted(labels[:, :count]) for count in self._neighbours}
        return [
            Score(f"{count}-NN accuracy", "accuracy", {"predicted": predicted, "gold": gold})
            for count, predicted in votes.items()
        ]

    def notes(self) -> list[str]:
        train, test = self.data.train, self.data.tested
        whose = "the others of them" if test is train else f"{len(train):,} texts"
        return [f"{len(test):,} texts, with {whose} as neighbours."]


def voted(labels: np.ndarray) -> np.ndarray:
    """Return the most frequent class of each row `(q,)`; among several, the one that comes first.

    # Parameters

    labels : the classes of the neighbours `(q, k)`, the nearest first.
    """
    votes = [(labels == one[:, None]).sum(axis=1) for one in labels.T]  # for each place
    first = np.argmax(votes, axis=0)  # of equally many votes, those of the nearest one
    return labels[np.arange(len(labels)), first]
