"""Learners that train all classifiers at once, against SentEval's loop over single modules."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from declutr.evaluation.classifiers.classifiers import SklearnLearner, TorchLearner, learner
from declutr.evaluation.classifiers.features import Features
from declutr.evaluation.task import PROTOTYPING, PUBLISHED, Protocol
from tests.evaluation import plain_senteval as plain

CLASSES, WIDTH = 3, 5
QUICK = replace(PUBLISHED, batch_size=16, tenacity=2, epoch_size=2, max_epoch=60)


def blobs(count: int, spread: float = 1.5) -> tuple[torch.Tensor, np.ndarray]:
    """Draw classes that overlap, so that accuracies differ between evaluations."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=count)
    centres = 2 * rng.standard_normal((CLASSES, WIDTH))
    points = centres[labels] + spread * rng.standard_normal((count, WIDTH))
    return torch.from_numpy(points.astype(np.float32)), labels


def folds(count: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return three folds; one needs a further batch of 16, which has a single row."""
    order = np.random.default_rng(1).permutation(count)
    dev = [order[:32], order[32:64], order[64:95]]
    return [np.setdiff1d(order, part) for part in dev], dev


@pytest.mark.parametrize(
    "protocol",
    [
        replace(QUICK, epoch_size=8, max_epoch=200),
        replace(QUICK, optimizer="rmsprop", epoch_size=1),
        replace(QUICK, hidden=7, optimizer="rmsprop"),
    ],
    ids=["adam", "rmsprop", "hidden"],
)
def test_a_search_trains_each_classifier_as_senteval_does(protocol: Protocol) -> None:
    x, labels = blobs(96)
    train, dev = folds(96)
    assert [math.ceil(len(rows) / 16) for rows in train] == [4, 4, 5]
    penalties = np.array([[1e-5, 1e-2, 0.3]] * 3)
    found = TorchLearner(Features(x), labels, CLASSES, protocol).search(train, dev, penalties)
    looks = set()
    for fold in range(3):
        for number, penalty in enumerate(penalties[fold]):
            accuracy, model, took = plain.fit(
                x, labels, CLASSES, train[fold], dev[fold], penalty, protocol
            )
            looks.add(took)
            assert found.accuracy[fold, number] == accuracy
            everything = np.arange(96)
            expected = model(x).argmax(1).numpy()
            np.testing.assert_array_equal(found.predict(fold, number, everything), expected)
            right = (expected == labels)[dev[fold]]
            np.testing.assert_array_equal(found.correct[fold][:, number], right)
    assert len(looks) > 1  # some folds stopped before others
    assert found.accuracy.max() > 0.6  # the classifiers learnt something


def test_without_a_development_set_a_twentieth_is_held_out_as_senteval_does() -> None:
    x, labels = blobs(96)
    train, _ = folds(96)
    found = TorchLearner(Features(x), labels, CLASSES, QUICK).final(train, np.array([1e-3] * 3))
    for fold, rows in enumerate(train):
        accuracy, model, _ = plain.fit(x, labels, CLASSES, rows, None, 1e-3, QUICK)
        assert found.accuracy[fold, 0] == accuracy
        got = found.predict(fold, 0, np.arange(96))
        np.testing.assert_array_equal(got, model(x).argmax(1).numpy())


@pytest.mark.parametrize("tenacity", [0, 3])
def test_patience_counts_all_evaluations_without_improvement(
    tenacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accuracies go up and down, so that no two evaluations in a row are without improvement."""
    x, labels = blobs(64)
    protocol = replace(QUICK, tenacity=tenacity, epoch_size=1)
    trained = TorchLearner(Features(x), labels, CLASSES, protocol)
    looks = []

    def classes(*_: object) -> np.ndarray:
        looks.append(len(looks))
        right = 10 + looks[-1] // 2 if looks[-1] % 2 == 0 else 0
        return np.where(np.arange(64) < right, labels, -1)[:, None]

    monkeypatch.setattr(trained, "_classes", classes)
    found = trained.search([np.arange(64)], [np.arange(64)], np.array([[1e-3]]))
    assert len(looks) == 2 * (tenacity + 1)
    assert found.accuracy[0, 0] == (10 + tenacity) / 64
    assert found.correct[0].sum() == 10 + tenacity


def test_training_ends_at_the_maximum_number_of_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    x, labels = blobs(32)
    protocol = replace(QUICK, tenacity=1000, epoch_size=3, max_epoch=12)
    trained = TorchLearner(Features(x), labels, CLASSES, protocol)
    passes, plain = [], trained._pass
    monkeypatch.setattr(trained, "_pass", lambda *a: (passes.append(1), plain(*a)))
    trained.search([np.arange(32)], [np.arange(32)], np.array([[1e-3]]))
    assert len(passes) == 15  # like SentEval, a round still begins after epoch 12


@pytest.mark.parametrize(
    "protocol", [QUICK, replace(QUICK, hidden=4, dropout=0.3, optimizer="rmsprop")]
)
def test_training_depends_on_its_seed_and_leaves_global_random_states_alone(
    protocol: Protocol,
) -> None:
    x, labels = blobs(96)
    train, dev = folds(96)

    def predicted(seed: int) -> np.ndarray:
        made = TorchLearner(Features(x), labels, CLASSES, replace(protocol, seed=seed))
        found = made.search(train, dev, np.array([[1e-3]] * 3))
        return np.stack([found.predict(fold, 0, np.arange(96)) for fold in range(3)])

    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first = predicted(1)
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])
    np.testing.assert_array_equal(first, predicted(1))
    assert (first != predicted(2)).any()


def test_the_sklearn_learner_trains_the_models_of_scikit_learn() -> None:
    x, labels = blobs(200)
    train, dev = [np.arange(100), np.arange(50, 200)], [np.arange(100, 200), np.arange(50)]
    penalties = np.array([[0.25, 8.0]] * 2)
    made = SklearnLearner(Features(x), labels, CLASSES, QUICK)
    found = made.search(train, dev, penalties)
    last = made.final(train, np.array([0.25, 8.0]))
    for fold, rows in enumerate(train):
        for number, c in enumerate(penalties[fold]):
            model = LogisticRegression(C=c, max_iter=1000).fit(x[rows].numpy(), labels[rows])
            expected = model.predict(x.numpy())
            np.testing.assert_array_equal(found.predict(fold, number, np.arange(200)), expected)
            right = expected[dev[fold]] == labels[dev[fold]]
            np.testing.assert_array_equal(found.correct[fold][:, number], right)
            assert found.accuracy[fold, number] == right.mean()
            if number == fold:
                np.testing.assert_array_equal(last.predict(fold, 0, np.arange(200)), expected)


def test_both_learners_agree_when_trained_to_convergence() -> None:
    x, labels = blobs(3000, spread=1.0)
    patient = replace(PUBLISHED, tenacity=30)
    train, test = [np.arange(1500)], np.arange(1500, 3000)
    accuracies = []
    for name in ("torch", "sklearn"):
        made = learner(Features(x), labels, CLASSES, replace(patient, classifier=name))
        found = made.search(train, train, np.array([[made.unpenalised]]))
        accuracies.append(np.mean(found.predict(0, 0, test) == labels[test]))
    assert accuracies[0] > 0.8
    assert abs(accuracies[0] - accuracies[1]) < 0.005


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classifier": "svm"}, r"Unknown classifier 'svm'; known: \['sklearn', 'torch'\]"),
        ({"optimizer": "sgd"}, r"Unknown optimizer 'sgd'; known: \['adam', 'rmsprop'\]"),
        ({"classifier": "sklearn", "hidden": 50}, "no hidden layer, got hidden=50; take classif"),
    ],
)
def test_unknown_settings_are_refused(change: dict, message: str) -> None:
    x, labels = blobs(10)
    with pytest.raises(ValueError, match=message):
        learner(Features(x), labels, CLASSES, replace(PROTOTYPING, **change))
