"""What a task is: sentences it needs embedded, and scores it makes of their embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from declutr.evaluation.scores import Score

Vectors = Callable[[Sequence[str]], np.ndarray]
"""The embeddings `(n, d)`, float32, of some of the sentences that the task named."""


class TaskError(Exception):
    """This task cannot be scored; others can."""


class MissingData(TaskError):
    """A file of the task is not there."""


class BrokenData(TaskError):
    """A file of the task does not hold what it should: which, where, and what was expected."""


class BadEmbeddings(TaskError):
    """The encoder gave numbers that cannot be scored."""


@dataclass(frozen=True)
class Protocol:
    """SentEval's settings of what is trained on top of embeddings.

    The default is the published one of SentEval's examples and of the papers.
    """

    name: str = "published"
    kfold: int = 10
    """Folds of cross-validation, for tasks without a split."""
    hidden: int = 0
    """Units of the classifier's hidden layer; 0 for logistic regression."""
    optimizer: str = "adam"
    """`adam`, or `rmsprop` as in the prototyping configuration."""
    batch_size: int = 64
    tenacity: int = 5
    """How many looks at the development set without an improvement end training."""
    epoch_size: int = 4
    """Passes over the data between two such looks."""
    max_epoch: int = 200
    dropout: float = 0.0
    classifier: str = "torch"
    """`torch`, SentEval's own; or `sklearn`, scikit-learn's logistic regression."""
    regressor: bool = True
    """Whether STS-B and SICK-R train SentEval's regressor besides taking cosines. It takes most of
    their time."""
    seed: int = 1111
    device: str = "cpu"
    """Where classifiers are trained."""


PUBLISHED = Protocol()
PROTOTYPING = Protocol(
    name="prototyping", kfold=5, optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2
)
PROTOCOLS = {protocol.name: protocol for protocol in (PUBLISHED, PROTOTYPING)}


class Task(ABC):
    """A test of embeddings.

    # Parameters

    name : of the task, unique, as published (`MR`, `STS12`, `SICK-R`).
    group : `downstream`, `probing`, `sts`, `retrieval` or `geometry`.
    main : the name of the score that stands for the task where there is room for one.
    """

    def __init__(self, name: str, group: str, main: str) -> None:
        self.name, self.group, self.main = name, group, main

    @abstractmethod
    def sentences(self) -> list[str]:
        """All sentences to embed, read on the first call; the same one may come several times.

        # Raises

        `MissingData`, `BrokenData`.
        """

    @abstractmethod
    def scores(self, vectors: Vectors) -> list[Score]:
        """The scores, the one named `main` among them."""

    def notes(self) -> list[str]:
        """What a reader of the scores should know: rows left out, a part of the data missing."""
        return []


def require_file(path: Path) -> Path:
    """`path`, if there is such a file.

    # Raises

    `MissingData` : there is none.
    """
    if not path.is_file():
        raise MissingData(f"{path} is not there.")
    return path


def require_rows(path: Path, got: int, expected: int) -> None:
    """# Raises

    `BrokenData` : a file has another number of rows than the one beside it.
    """
    if got != expected:
        raise BrokenData(f"{path} has {got} rows, expected {expected} as in the file beside it.")
