"""The interface of learners, which train classifiers on features."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from declutr.evaluation.classifiers.features import Features
from declutr.evaluation.task import Protocol

Rows = Sequence[np.ndarray]
"""The numbers of items, one array for each fold."""


@dataclass(frozen=True)
class Found:
    """Classifiers that were trained on F folds with R penalties each."""

    accuracy: np.ndarray
    """The accuracy of each classifier on its development rows, 0 to 1, `(F, R)`."""
    correct: list[np.ndarray]
    """One array `(n, R)` for each fold: which development rows each classifier predicts correctly.
    """
    predict: Callable[[int, int, np.ndarray], np.ndarray]
    """A function from the numbers of a fold and of a penalty and rows `(n,)` to classes `(n,)`."""


class Learner(ABC):
    """A learner, which trains classifiers on features.

    # Parameters

    features : the features of n items.
    labels : their classes `(n,)`, from 0 to `classes - 1`.
    classes : the number of classes.
    protocol : SentEval's settings.
    """

    grid: Sequence[float]
    """The penalties to choose from, in the terms of the classifier."""
    kfold_grid: Sequence[float]
    """The penalties to choose from if a data set has a train and a test part only."""
    unpenalised: float
    """A penalty so weak that it has no effect."""

    def __init__(
        self, features: Features, labels: np.ndarray, classes: int, protocol: Protocol
    ) -> None:
        self.labels, self.classes, self.protocol = labels, classes, protocol
        self.features = features

    @abstractmethod
    def search(self, train: Rows, dev: Rows, penalties: np.ndarray) -> Found:
        """Train a classifier for each fold and penalty, and evaluate it on development rows.

        # Parameters

        train, dev : for each of F folds, the rows to train on and the rows to evaluate on.
        penalties : the penalties of each fold, `(F, R)`.
        """

    @abstractmethod
    def final(self, train: Rows, penalties: np.ndarray) -> Found:
        """Train a classifier for each fold with a penalty of its own, without development rows.

        # Parameters

        train : for each of F folds, the rows to train on.
        penalties : the penalty of each fold, `(F,)`.
        """
