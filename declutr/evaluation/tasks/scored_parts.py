"""Tasks with the same scores of test data and, if there are any, of development data."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from declutr.evaluation.scores import Score
from declutr.evaluation.task import Task, Vectors


class ScoredPart(ABC):
    """The data of a part of a task: what has to be embedded, and what is scored."""

    @abstractmethod
    def sentences(self) -> list[str]:
        """Return all sentences to embed, possibly with duplicates."""

    @abstractmethod
    def scores(self, vectors: Vectors) -> list[Score]:
        """Compute the scores; see `Task.scores`."""

    @abstractmethod
    def notes(self) -> list[str]:
        """Return remarks on the data; see `Task.notes`."""


class ScoredParts(Task):
    """A task whose parts, test and development data, are scored alike.

    # Parameters

    name, group, main : see `Task`.
    read : reads the parts by name: `test`, and `dev` if there is one, whose scores end with it.
    """

    def __init__(
        self, name: str, group: str, main: str, read: Callable[[], Mapping[str, ScoredPart]]
    ) -> None:
        super().__init__(name, group, main)
        self._read = read

    @cached_property
    def _parts(self) -> dict[str, ScoredPart]:
        read = self._read()
        return {name: read[name] for name in ("test", "dev") if name in read}

    def sentences(self) -> list[str]:
        return [text for part in self._parts.values() for text in part.sentences()]

    def scores(self, vectors: Vectors) -> list[Score]:
        endings = {"test": "", "dev": " dev"}
        return [
            replace(score, name=score.name + endings[name])
            for name, part in self._parts.items()
            for score in part.scores(vectors)
        ]

    def notes(self) -> list[str]:
        return self._parts["test"].notes()
