"""The interface of a task: it names the sentences it needs, and scores their embeddings."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from declutr.evaluation.scores import Score

Vectors = Callable[[Sequence[str]], np.ndarray]
"""A function from some of the sentences of a task to their embeddings `(n, d)`, float32."""


class TaskError(Exception):
    """Error raised when a task cannot be scored; other tasks still can."""


class MissingData(TaskError):
    """Error raised when a file of a task does not exist."""


class BrokenData(TaskError):
    """Error raised when a file of a task has wrong content; it names the file and the place."""


class BadEmbeddings(TaskError):
    """Error raised when embeddings cannot be scored because of their shape or their values."""


@dataclass(frozen=True)
class Protocol:
    """SentEval's settings for the classifiers and regressors that are trained on embeddings.

    The default is the published one, that of SentEval's examples and of the papers.
    """

    name: str = "published"
    kfold: int = 10
    """The number of folds of cross-validation, for data sets without a split."""
    hidden: int = 0
    """The number of hidden units of the classifier; 0 for logistic regression."""
    optimizer: str = "adam"
    """The optimizer: `adam`, or `rmsprop` as in SentEval's prototyping configuration."""
    batch_size: int = 64
    tenacity: int = 5
    """The number of evaluations on the development set without improvement that are allowed."""
    epoch_size: int = 4
    """The number of epochs between two evaluations on the development set."""
    max_epoch: int = 200
    dropout: float = 0.0
    classifier: str = "torch"
    """The classifier: `torch`, SentEval's own, or `sklearn`, scikit-learn's."""
    regressor: bool = True
    """Whether STS-B and SICK-R also train SentEval's regressor, which takes most of their time."""
    seed: int = 1111
    device: str | None = "cpu"
    """The device that classifiers are trained on; `None` is a GPU if there is one."""

    @property
    def trained_on(self) -> str:
        """The device that classifiers are trained on; only then is torch imported to ask."""
        import torch

        return self.device or ("cuda" if torch.cuda.is_available() else "cpu")


PUBLISHED = Protocol()
"""SentEval's settings for published results."""
PROTOTYPING = Protocol(
    name="prototyping", kfold=5, optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2
)
"""SentEval's faster settings for prototyping."""
PROTOCOLS = {protocol.name: protocol for protocol in (PUBLISHED, PROTOTYPING)}
"""The protocols by name."""


class Task(ABC):
    """A task that tests sentence embeddings.

    # Parameters

    name : the published name of the task (`MR`, `STS12`, `SICK-R`), unique among all tasks.
    group : `downstream`, `probing`, `sts`, `retrieval`, `reranking`, `pairs`, `bitext-mining`,
        `summarisation`, `clustering`, `few-shot`, `knn`, `geometry`, `extra` or `map`.
    main : the name of the score that stands for the task where only one is shown.
    """

    described_in: Path | None = None
    """The description of the task, if it is one of the user's own."""

    def __init__(self, name: str, group: str, main: str) -> None:
        self.name, self.group, self.main = name, group, main

    @abstractmethod
    def sentences(self) -> list[str]:
        """Return all sentences to embed, possibly with duplicates; the first call reads the data.

        # Raises

        `MissingData` : a file does not exist.
        `BrokenData` : a file has wrong content.
        """

    @abstractmethod
    def scores(self, vectors: Vectors) -> list[Score]:
        """Compute the scores, among them the one named `main`.

        # Parameters

        vectors : returns the embeddings `(n, d)` of any of the sentences.
        """

    def notes(self) -> list[str]:
        """Return remarks on the scores, such as items left out or a part of the data missing."""
        return []


def require_file(path: Path) -> Path:
    """Return `path` if there is such a file.

    # Raises

    `MissingData` : there is no such file.
    `BrokenData` : there cannot be one, or it must not be looked for.
    """
    try:
        found = path.is_file()
    except OSError as error:
        raise BrokenData(f"{str(path)[:200]}: {error.strerror}.") from error
    if not found:
        raise MissingData(f"{path} is not there.")
    return path


def require_rows(path: Path, got: int, expected: int) -> None:
    """Raise if a file does not have as many rows as the file that belongs to it.

    # Raises

    `BrokenData` : the numbers of rows differ.
    """
    if got != expected:
        raise BrokenData(f"{path} has {got} rows, expected {expected} as in the file beside it.")
