"""The metrics of GLUE against scipy and scikit-learn, over batches, and of MNLI's parts."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from declutr.task_models.glue.metrics import OF_CLASSES, ClassMetrics, ScoreMetrics, metrics_of

# By hand: (gold, predicted), accuracy, F1 of class 1, Matthews correlation.
BY_HAND = [
    ([1, 1, 0, 0], [1, 0, 1, 0], 0.5, 0.5, 0.0),
    ([1, 1, 1, 0], [1, 1, 0, 0], 0.75, 0.8, 3**-0.5),  # (2*1 - 0*1) / sqrt(2 * 3 * 1 * 2)
    ([0, 0, 0, 0], [0, 0, 0, 0], 1.0, 0.0, 0.0),
    ([1, 0, 1, 0], [1, 1, 1, 1], 0.5, 2 / 3, 0.0),
]


def class_metrics(gold: Any, predicted: Any, classes: int = 2) -> dict[str, float]:
    metrics = ClassMetrics(classes, OF_CLASSES)
    for start in range(0, len(gold), 3):
        part = slice(start, start + 3)
        metrics(torch.tensor(predicted[part]), torch.tensor(gold[part]))
    return metrics.get_metric(reset=True)


@pytest.mark.parametrize(("gold", "predicted", "accuracy", "f1", "matthews"), BY_HAND)
def test_by_hand(
    gold: list[int], predicted: list[int], accuracy: float, f1: float, matthews: float
) -> None:
    found = class_metrics(gold, predicted)
    assert found == pytest.approx({"accuracy": accuracy, "f1": f1, "matthews": matthews})


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_classes_equal_scikit_learn(classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gold, predicted = rng.integers(0, classes, (2, 50))
    found = class_metrics(gold, predicted, classes)
    assert found["accuracy"] == pytest.approx(accuracy_score(gold, predicted))
    assert found["matthews"] == pytest.approx(matthews_corrcoef(gold, predicted))
    of_one = f1_score(gold, predicted, labels=[1], average=None, zero_division=0)[0]
    assert found["f1"] == pytest.approx(of_one)


def test_parts_and_texts_without_a_label() -> None:
    metrics = ClassMetrics(3)
    assert metrics.get_metric(reset=True) == {}
    metrics(torch.tensor([0, 1, 2]), torch.tensor([0, 2, -100]), ["matched"] * 3)
    metrics(torch.tensor([2, 2]), torch.tensor([2, 2]), ["matched", "mismatched"])
    metrics(torch.tensor([0]), torch.tensor([1]), ["of somebody's reader"])
    found = {"accuracy": 3 / 5, "matched_accuracy": 2 / 3, "mismatched_accuracy": 1.0}
    assert metrics.get_metric() == metrics.get_metric(reset=True) == pytest.approx(found)
    assert metrics.get_metric() == {}


def test_scores_equal_scipy() -> None:
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 6, 40).astype(np.float32)  # with ties
    predicted = (gold + rng.normal(size=40)).astype(np.float32)
    metrics = ScoreMetrics()
    assert metrics.get_metric() == {}
    for start in range(0, 40, 7):
        part = slice(start, start + 7)
        metrics(torch.tensor(predicted[part]), torch.tensor(gold[part]))
    metrics(torch.tensor([7.0]), torch.tensor([torch.nan]))
    expected = {"pearson": pearsonr(predicted, gold)[0], "spearman": spearmanr(predicted, gold)[0]}
    assert metrics.get_metric() == metrics.get_metric(reset=True) == pytest.approx(expected)
    metrics(torch.ones(3), torch.arange(3.0))
    assert metrics.get_metric() == {"pearson": 0.0, "spearman": 0.0}


@pytest.mark.parametrize(
    ("task", "scores", "names"),
    [
        ("cola", False, ("matthews", "accuracy")),
        ("qqp", False, ("accuracy", "f1")),
        ("sts-b", True, ("pearson", "spearman")),
        ("mnli", False, ("accuracy",)),
        (None, False, ("accuracy",)),
    ],
)
def test_each_task_has_glues_own_metrics(
    task: str | None, scores: bool, names: tuple[str, ...]
) -> None:
    assert metrics_of(task, scores) == names
