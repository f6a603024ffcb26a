"""What trains classifiers on rows of features, and what it finds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from declutr.evaluation.classifiers.features import Features
from declutr.evaluation.task import Protocol

Rows = Sequence[np.ndarray]
"""Of each fold, numbers of items."""


@dataclass(frozen=True)
class Found:
    """Classifiers trained on F folds with R penalties each."""

    accuracy: np.ndarray
    """On the development rows, between 0 and 1, `(F, R)`."""
    correct: list[np.ndarray]
    """Of each fold, which development rows are classified rightly, `(n, R)`."""
    predict: Callable[[int, int, np.ndarray], np.ndarray]
    """The classes `(n,)` that a fold's classifier with a penalty gives to rows `(n,)`."""


class Learner(ABC):
    """Trains classifiers on rows of features.

    # Parameters

    features, labels : of n items; labels `(n,)` are 0 ... classes - 1.
    protocol : SentEval's settings.
    """

    grid: Sequence[float]
    """The penalties to choose from, in the classifier's own terms."""
    kfold_grid: Sequence[float]
    """The same for tasks that have a test set and are cross-validated for the penalty alone."""
    unpenalised: float
    """So weak a penalty that it is none."""

    def __init__(
        self, features: Features, labels: np.ndarray, classes: int, protocol: Protocol
    ) -> None:
        self.labels, self.classes, self.protocol = labels, classes, protocol
        self.features = features

    @abstractmethod
    def search(self, train: Rows, dev: Rows, penalties: np.ndarray) -> Found:
        """A classifier for each fold and penalty.

        # Parameters

        train, dev : of each of F folds, rows to train on and to look at.
        penalties : `(F, R)`.
        """

    @abstractmethod
    def final(self, train: Rows, penalties: np.ndarray) -> Found:
        """A classifier for each fold with its own penalty `(F,)`, without a development set."""
