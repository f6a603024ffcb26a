"""Cross-validation: no item is tested by a classifier that was trained on it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from declutr.evaluation.classifiers.cross_validation import _best, kfold, nested_kfold, split
from declutr.evaluation.classifiers.features import Features
from declutr.evaluation.classifiers.learner import Found, Learner
from declutr.evaluation.task import PUBLISHED, BrokenData

LABELS = np.array([0, 1] * 30)


class Memory(Learner):
    """A learner that knows the labels of its training items, and is wrong about all others."""

    grid = kfold_grid = (1.0, 2.0, 3.0, 4.0)
    unpenalised = 0.0

    def __init__(self, labels: np.ndarray, accuracies: list[float], k: int = 5) -> None:
        features = Features(torch.zeros(len(labels), 1))
        super().__init__(features, labels, 2, replace(PUBLISHED, kfold=k))
        self.accuracies = accuracies
        self.searches: list[tuple] = []
        self.finals: list[tuple] = []

    def search(self, train, dev, penalties) -> Found:
        self.searches.append((train, dev, penalties))
        accuracy = np.tile(np.array(self.accuracies[: penalties.shape[1]]), (len(train), 1))
        # The classifier with penalty number r is right about the first r of its rows.
        correct = [np.arange(len(rows))[:, None] < np.arange(penalties.shape[1]) for rows in dev]
        return Found(accuracy, correct, lambda fold, number, rows: self.seen(train[fold], rows))

    def final(self, train, penalties) -> Found:
        self.finals.append((train, penalties))
        accuracy, nothing = np.zeros((len(train), 1)), [np.zeros((0, 1), bool)] * len(train)
        return Found(accuracy, nothing, lambda fold, number, rows: self.seen(train[fold], rows))

    def seen(self, train: np.ndarray, rows: np.ndarray) -> np.ndarray:
        return np.where(np.isin(rows, train), self.labels[rows], 1 - self.labels[rows])


def test_nested_folds_never_test_items_they_were_trained_on() -> None:
    memory = Memory(LABELS, [0.5, 0.7, 0.6, 0.7])
    outcome = nested_kfold(memory, np.arange(60))
    np.testing.assert_array_equal(outcome.predicted, 1 - LABELS)
    (finals, penalties), searches = memory.finals[0], memory.searches
    assert len(searches) == 5
    assert penalties.tolist() == [2.0] * 5  # the first of the two best ones
    for train, (inner, dev, _) in zip(finals, searches, strict=True):
        assert len(train) == 48
        for some, left_out in zip(inner, dev, strict=True):
            assert sorted([*some, *left_out]) == sorted(train)
        np.testing.assert_array_equal(np.sort(np.concatenate(dev)), np.sort(train))
    # One row is right in each of 25 inner folds, and each row is evaluated in four outer folds.
    assert outcome.dev.sum() == pytest.approx(25 / 4)


def test_a_test_set_stays_out_of_the_search() -> None:
    memory = Memory(LABELS, [0.5, 0.6, 0.9, 0.7])
    outcome = kfold(memory, np.arange(40), np.arange(40, 60))
    np.testing.assert_array_equal(outcome.predicted, 1 - LABELS[40:])
    [(train, penalties)] = memory.finals
    assert penalties.tolist() == [3.0]
    np.testing.assert_array_equal(train[0], np.arange(40))
    assert max(rows.max() for rows in memory.searches[0][0]) < 40
    assert outcome.dev.shape == (40,)
    assert outcome.dev.sum() == 5 * 2


def test_the_folds_equal_those_of_sentevals_validation_py() -> None:
    """Nested cross-validation has the fixed seed 1111, plain cross-validation the given one."""
    rows, nothing = np.arange(60), np.zeros((60, 1))
    for seed in (1111, 5):
        memory = Memory(LABELS, [1.0] * 4)
        memory.protocol = replace(memory.protocol, seed=seed)
        nested_kfold(memory, rows)
        outer = StratifiedKFold(5, shuffle=True, random_state=1111)
        for (train, _), got in zip(outer.split(nothing, LABELS), memory.finals[0][0], strict=True):
            np.testing.assert_array_equal(got, train)
        kfold(memory, rows, rows)
        given = StratifiedKFold(5, shuffle=True, random_state=seed)
        found = memory.searches[-1][1]
        for (_, dev), got in zip(given.split(nothing, LABELS), found, strict=True):
            np.testing.assert_array_equal(got, dev)


def test_accuracies_that_are_equal_to_two_decimals_are_equal() -> None:
    memory = Memory(LABELS, [0.70001, 0.70002, 0.6, 0.6])
    kfold(memory, np.arange(40), np.arange(40, 60))
    assert memory.finals[0][1].tolist() == [1.0]


def test_means_of_ten_folds_are_rounded_as_senteval_rounds_them() -> None:
    """Half of the last digit is common: numpy adds ten numbers of a list in an order of its own."""
    for counts in np.random.default_rng(0).integers(280, 285, (200, 10, 4)):
        found = Found(counts / 400, [], lambda fold, number, rows: rows)
        means = [round(100 * np.mean(list(column / 400)), 2) for column in counts.T]
        assert _best(found) == np.argmax(means)


@pytest.mark.parametrize("penalised", [True, False])
def test_a_split_trains_each_classifier_once(penalised: bool) -> None:
    memory = Memory(LABELS, [0.5, 0.6, 0.9, 0.7])
    train, dev, test = np.split(np.arange(60), [30, 45])
    outcome = split(memory, train, dev, test, penalised)
    [(_, _, penalties)] = memory.searches
    assert memory.finals == []
    assert penalties.tolist() == ([[1.0, 2.0, 3.0, 4.0]] if penalised else [[0.0]])
    np.testing.assert_array_equal(outcome.predicted, 1 - LABELS[test])
    assert outcome.dev.sum() == (2 if penalised else 0)


def test_a_rare_class_is_accepted_and_too_few_items_are_refused() -> None:
    rare = np.array([0] * 20 + [1] * 3)
    assert len(nested_kfold(Memory(rare, [1.0] * 4), np.arange(23)).predicted) == 23
    with pytest.raises(BrokenData, match=r"5-fold .* at least 5 items; the largest .* has 2"):
        kfold(Memory(np.array([0, 1] * 2), [1.0] * 4), np.arange(4), np.arange(4))
