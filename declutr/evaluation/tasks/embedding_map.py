"""A task that is only looked at: labelled sentences on two principal components."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from declutr.evaluation.scores import Score
from declutr.evaluation.task import Task, Vectors
from declutr.evaluation.tasks.geometry import unit
from declutr.evaluation.tasks.labelled_text import ClassificationTask

_FEELINGS = ("negative", "positive")
CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "TREC": ("abbreviation", "description", "entity", "person", "place", "number"),
    "AGNews": ("world", "sports", "business", "science"),
    "SUBJ": ("subjective", "objective"),
    "SST5": ("very negative", "negative", "neutral", "positive", "very positive"),
    "SST2": _FEELINGS,
    "MR": _FEELINGS,
    "CR": _FEELINGS,
    "MPQA": _FEELINGS,
}
"""Tasks of which a map can be drawn, the best first, and what their classes are called."""


def map_of(tasks: Sequence[Task]) -> EmbeddingMap | None:
    """A map of the best of these tasks, whose data are there; none if none will do."""
    by_name = {task.name: task for task in tasks if isinstance(task, ClassificationTask)}
    best = next(filter(by_name.__contains__, CLASS_NAMES), None)
    return None if best is None else EmbeddingMap(by_name[best])


class EmbeddingMap(Task):
    """Coordinates of sentences on the first two principal components of their embeddings.

    Embeddings are scaled to length 1 first, as cosines do. The score is the share of the variance
    that the two components show; what is drawn is among its items: `x`, `y` and `label`.

    # Parameters

    source : whose sentences these are: of its test set, or of all there are.
    most : sentences drawn.
    """

    def __init__(self, source: ClassificationTask, most: int = 1000) -> None:
        super().__init__(f"map of {source.name}", group="map", main="variance shown")
        self._source, self._most = source, most

    @cached_property
    def _drawn(self) -> tuple[list[str], list[str]]:
        """Sentences and the names of their classes."""
        data = self._source.data
        part = data.tested
        names = CLASS_NAMES.get(self._source.name, tuple(map(str, range(data.classes))))
        rows = np.random.default_rng(0).permutation(len(part.labels))[: self._most]
        return [part.columns[0][row] for row in rows], [names[part.labels[row]] for row in rows]

    def sentences(self) -> list[str]:
        return self._drawn[0]

    def scores(self, vectors: Vectors) -> list[Score]:
        sentences, labels = self._drawn
        x = unit(vectors(sentences).astype(np.float64))
        points, shown = first_components(x)
        items = {"value": shown, "x": points[:, 0], "y": points[:, 1], "label": np.array(labels)}
        return [Score("variance shown", "mean", items)]


def first_components(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows `(n, d)` on their first two principal components.

    # Returns

    points : `(n, 2)`; signs are such that the farthest row of each component is on its upper side.
    shown : `(n,)`, whose mean is the share of the variance that the two components have.
    """
    x = x - x.mean(axis=0)
    sides, lengths, _ = np.linalg.svd(x, full_matrices=False)
    points = np.zeros((len(x), 2))
    points[:, : len(lengths[:2])] = sides[:, :2] * lengths[:2]
    farthest = points[np.abs(points).argmax(axis=0), [0, 1]]
    points *= np.where(farthest < 0, -1, 1)
    total = np.square(lengths).sum()
    if total < 1e-12 * len(x):  # all the same, but for rounding
        return points, np.zeros(len(x))
    return points, len(x) * np.square(points).sum(axis=1) / total
