"""SentEval's three ways to a test score, one for each kind of split (its `validation.py`).

* A data set without a split: nested k-fold cross-validation, which tests each item once.
* Train and test: k-fold cross-validation on the training set chooses the penalty.
* Train, development and test: the development set chooses the penalty.

Folds are stratified, shuffled and seeded as in SentEval; the folds of nested cross-validation have
a fixed seed of their own.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import StratifiedKFold

from declutr.evaluation.classifiers.learner import Found, Learner
from declutr.evaluation.task import BrokenData

NESTED_SEED = 1111
"""The seed of the folds of nested cross-validation; the protocol's seed does not change it."""


@dataclass(frozen=True)
class Outcome:
    """The test predictions and the development accuracy of a classification task."""

    predicted: np.ndarray
    """The predicted classes of the test items, `(n,)`."""
    dev: np.ndarray
    """The share of its evaluations in which each development item was classified correctly, `(m,)`.
    """


def nested_kfold(learner: Learner, rows: np.ndarray) -> Outcome:
    """Test each of k folds with a penalty that is chosen by cross-validation on the other folds.

    # Raises

    `BrokenData` : no class has as many items as there are folds.
    """
    folds = _folds(learner, rows, NESTED_SEED)
    predicted = np.zeros(len(learner.labels), np.int64)
    right, seen = np.zeros((2, len(learner.labels)))
    chosen = []
    for train, _ in folds:
        inner = _folds(learner, train, NESTED_SEED)
        found = _searched(learner, inner, learner.grid)
        chosen.append(_best(found))
        for (_, dev), correct in zip(inner, found.correct, strict=True):
            right[dev] += correct[:, chosen[-1]]
            seen[dev] += 1
    penalties = np.array([learner.grid[number] for number in chosen])
    final = learner.final([train for train, _ in folds], penalties)
    for number, (_, test) in enumerate(folds):
        predicted[test] = final.predict(number, 0, test)
    return Outcome(predicted[rows], right[rows] / seen[rows])


def kfold(learner: Learner, train: np.ndarray, test: np.ndarray) -> Outcome:
    """Choose a penalty by cross-validation on `train`, train on all of it, and test on `test`.

    # Raises

    `BrokenData` : no class has as many items as there are folds.
    """
    folds = _folds(learner, train, learner.protocol.seed)
    found = _searched(learner, folds, learner.kfold_grid)
    best = _best(found)
    right = np.zeros(len(learner.labels))
    for (_, dev), correct in zip(folds, found.correct, strict=True):
        right[dev] = correct[:, best]
    final = learner.final([train], np.array([learner.kfold_grid[best]]))
    return Outcome(final.predict(0, 0, test), right[train])


def split(
    learner: Learner, train: np.ndarray, dev: np.ndarray, test: np.ndarray, penalised: bool = True
) -> Outcome:
    """Choose a penalty on `dev`, and test the classifier that was trained with it.

    SentEval trains the chosen classifier a second time, on the same data with the same seed. Here
    the first one is used.

    # Parameters

    learner : trains the classifiers.
    train, dev, test : numbers of items.
    penalised : search for a penalty; otherwise, train without one.
    """
    grid = learner.grid if penalised else [learner.unpenalised]
    found = learner.search([train], [dev], np.array([grid]))
    best = _best(found)
    return Outcome(found.predict(0, best, test), found.correct[0][:, best].astype(np.float64))


def _searched(learner: Learner, folds: list[tuple[np.ndarray, np.ndarray]], grid) -> Found:
    train, dev = [train for train, _ in folds], [dev for _, dev in folds]
    return learner.search(train, dev, np.tile(np.array(grid), (len(folds), 1)))


def _best(found: Found) -> int:
    """Return the number of the first penalty with the best mean accuracy.

    Accuracies in percent are rounded to two decimals first, as in SentEval.
    """
    each = np.ascontiguousarray(found.accuracy.T)  # numpy adds up as it does for a list of folds
    return int(np.argmax(np.round(100 * each.mean(axis=1), 2)))


def _folds(learner: Learner, rows: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return k pairs of rows to train on and rows that are left out."""
    k, labels = learner.protocol.kfold, learner.labels[rows]
    if np.bincount(labels).max() < k:
        raise BrokenData(
            f"{k}-fold cross-validation needs a class of at least {k} items; the largest class of "
            f"these {len(rows)} items has {np.bincount(labels).max()}."
        )
    return [(rows[train], rows[left_out]) for train, left_out in stratified(labels, k, seed)]


def stratified(labels: ArrayLike, k: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the places of labels `(n,)` in k stratified folds: all others, and those of the fold.

    As in SentEval, a class with few items may be missing in a fold.
    """
    folds = StratifiedKFold(k, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        return list(folds.split(np.asarray(labels), labels))
