"""The base of tasks that score the data of a classification task in another way."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import ClassVar
from warnings import catch_warnings, simplefilter

import numpy as np

from declutr.evaluation import text_files
from declutr.evaluation.classifiers import features
from declutr.evaluation.task import Protocol, Task, Vectors
from declutr.evaluation.tasks.labelled_text import ClassificationTask, LabelledText, Part


class LabelledVectors(Task):
    """A task on the data of a classification task, whose items are in the order of their files.

    # Parameters

    source : the classification task; the name of this one is `kind:NAME`.
    protocol : says the seed of draws.
    main : see `Task`.
    """

    kind: ClassVar[str]
    """The group of the task, and what stands before the name of its source."""

    def __init__(self, source: ClassificationTask, protocol: Protocol, main: str) -> None:
        super().__init__(f"{self.kind}:{source.name}", self.kind, main)
        self._read, self._combine, self._seed = source.read, source.combine, protocol.seed

    @cached_property
    def data(self) -> LabelledText:
        """The data set in the order of its files, checked, and read on first use."""
        data = self._read()
        for name in ("train", "dev", "test"):
            part = getattr(data, name)
            if part is not None:
                columns = tuple([text_files.words(text) for text in c] for c in part.columns)
                setattr(data, name, Part(columns, part.labels))
        self.check(data)
        return data

    @abstractmethod
    def check(self, data: LabelledText) -> None:
        """Raise `BrokenData` if the task cannot be scored on the data."""

    def features(self, part: Part, rows: Iterable[int], vectors: Vectors) -> np.ndarray:
        """Return the embeddings of items, or the features of pairs, `(n, w)`."""
        rows = list(rows)
        columns = [[column[row] for row in rows] for column in part.columns]
        if self._combine is None:
            return vectors(columns[0])
        pairs = features.pair_features(columns[0], columns[1], self._combine, vectors)
        return pairs.array(np.arange(len(rows)))


def texts_of(part: Part, rows: Iterable[int]) -> list[str]:
    """Return all texts of some items of a part."""
    rows = list(rows)
    return [column[row] for column in part.columns for row in rows]


@contextmanager
def unconverged() -> Iterator[None]:
    """Return a context in which scikit-learn does not warn that a model has not converged."""
    from sklearn.exceptions import ConvergenceWarning

    with catch_warnings():
        simplefilter("ignore", ConvergenceWarning)
        yield
