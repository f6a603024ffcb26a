"""A map of embeddings for a picture: labelled sentences on two principal components."""

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
"""Names of the classes of each task that a map can show, the most suitable task first."""


def map_of(tasks: Sequence[Task]) -> EmbeddingMap | None:
    """Return a map of the most suitable of these tasks, all with data, or None without one."""
    by_name = {task.name: task for task in tasks if isinstance(task, ClassificationTask)}
    best = next(filter(by_name.__contains__, CLASS_NAMES), None)
    return None if best is None else EmbeddingMap(by_name[best])


class EmbeddingMap(Task):
    """The coordinates of sentences on the first two principal components of their embeddings.

    Embeddings are scaled to length 1 first, as cosines do. The score is the share of the variance
    along the two components; its items contain what the picture shows, as `x`, `y` and `label`.

    # Parameters

    source : the task that sentences are taken from, namely from its test set, or from all of its
        data if there is no test set.
    most : the maximum number of sentences.
    """

    def __init__(self, source: ClassificationTask, most: int = 1000) -> None:
        super().__init__(f"map of {source.name}", group="map", main="variance shown")
        self._source, self._most = source, most

    @cached_property
    def _drawn(self) -> tuple[list[str], list[str]]:
        """The sentences of the map, and the name of the class of each."""
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
    """Project rows `(n, d)` on their first two principal components.

    # Returns

    points : `(n, 2)`; signs are chosen so that the row with the largest absolute value on a
        component is on its positive side.
    shown : `(n,)`, with a mean equal to the share of the variance along the two components.
    """
    x = x - x.mean(axis=0)
    sides, lengths, _ = np.linalg.svd(x, full_matrices=False)
    points = np.zeros((len(x), 2))
    points[:, : len(lengths[:2])] = sides[:, :2] * lengths[:2]
    farthest = points[np.abs(points).argmax(axis=0), [0, 1]]
    points *= np.where(farthest < 0, -1, 1)
    total = np.square(lengths).sum()
    if total < 1e-12 * len(x):  # all rows are equal up to rounding
        return points, np.zeros(len(x))
    return points, len(x) * np.square(points).sum(axis=1) / total
