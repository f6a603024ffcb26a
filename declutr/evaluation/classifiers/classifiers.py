"""The classifiers that SentEval trains on top of embeddings, and its search for their penalty."""

from __future__ import annotations

import numpy as np

from declutr.evaluation.classifiers.features import Features
from declutr.evaluation.classifiers.learner import Found, Learner
from declutr.evaluation.classifiers.sklearn_learner import SklearnLearner
from declutr.evaluation.classifiers.torch_learner import TorchLearner
from declutr.evaluation.task import Protocol

__all__ = ["LEARNERS", "Found", "Learner", "SklearnLearner", "TorchLearner", "learner"]


LEARNERS: dict[str, type[Learner]] = {"torch": TorchLearner, "sklearn": SklearnLearner}


def learner(features: Features, labels: np.ndarray, classes: int, protocol: Protocol) -> Learner:
    """The one that the protocol names.

    # Raises

    `ValueError` : there is none of that name.
    """
    if protocol.classifier not in LEARNERS:
        raise ValueError(f"Unknown classifier {protocol.classifier!r}; known: {sorted(LEARNERS)}.")
    return LEARNERS[protocol.classifier](features, labels, classes, protocol)
