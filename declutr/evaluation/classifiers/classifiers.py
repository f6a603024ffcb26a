"""The choice between SentEval's own classifiers and scikit-learn's logistic regression."""

import copy

import numpy as np
from sklearn.linear_model import LogisticRegression

from declutr.evaluation.classifiers.features import Features
from declutr.evaluation.classifiers.learner import Found, Learner, Rows
from declutr.evaluation.classifiers.torch_learner import TorchLearner
from declutr.evaluation.task import Protocol

__all__ = ["LEARNERS", "Found", "Learner", "SklearnLearner", "TorchLearner", "learner"]

SKLEARN_ITERATIONS = 1000
"""The maximum number of iterations; large embeddings do not converge in scikit-learn's 100."""


class SklearnLearner(Learner):
    """A learner that trains scikit-learn's logistic regression; penalties are values of its `C`.

    See `Learner` for the parameters.

    # Raises

    `ValueError` : the protocol asks for a hidden layer.
    """

    grid = tuple(2.0**power for power in range(-2, 4))
    kfold_grid = tuple(2.0**power for power in range(-1, 6))
    unpenalised = 1e9

    def __init__(
        self, features: Features, labels: np.ndarray, classes: int, protocol: Protocol
    ) -> None:
        super().__init__(features, labels, classes, protocol)
        if protocol.hidden:
            raise ValueError(
                f"scikit-learn's logistic regression has no hidden layer, got hidden="
                f"{protocol.hidden}; take classifier='torch'."
            )

    def search(self, train: Rows, dev: Rows, penalties: np.ndarray) -> Found:
        models = [*map(self._path, train, penalties)]

        def predict(fold: int, penalty: int, rows: np.ndarray) -> np.ndarray:
            return models[fold][penalty].predict(self.features.array(rows))

        correct = [np.zeros((len(rows), penalties.shape[1]), bool) for rows in dev]
        accuracy = np.zeros(penalties.shape)
        for fold, rows in enumerate(dev):
            for number in range(penalties.shape[1]) if len(rows) else ():
                correct[fold][:, number] = predict(fold, number, rows) == self.labels[rows]
                accuracy[fold, number] = correct[fold][:, number].mean()
        return Found(accuracy, correct, predict)

    def final(self, train: Rows, penalties: np.ndarray) -> Found:
        return self.search(train, [np.zeros(0, np.int64)] * len(train), penalties[:, None])

    def _path(self, rows: np.ndarray, strengths: np.ndarray) -> list[LogisticRegression]:
        """Train a model for each `C`, starting from the weights of the last one to save time."""
        x, y = self.features.array(rows), self.labels[rows]
        model = LogisticRegression(
            max_iter=SKLEARN_ITERATIONS, random_state=self.protocol.seed, warm_start=True
        )
        return [copy.deepcopy(model.set_params(C=float(c)).fit(x, y)) for c in strengths]


LEARNERS: dict[str, type[Learner]] = {"torch": TorchLearner, "sklearn": SklearnLearner}
"""Learners by the name that a protocol gives them."""


def learner(features: Features, labels: np.ndarray, classes: int, protocol: Protocol) -> Learner:
    """Make the learner that the protocol names; see `Learner` for the parameters.

    # Raises

    `ValueError` : there is no learner of that name.
    """
    if protocol.classifier not in LEARNERS:
        raise ValueError(f"Unknown classifier {protocol.classifier!r}; known: {sorted(LEARNERS)}.")
    return LEARNERS[protocol.classifier](features, labels, classes, protocol)
