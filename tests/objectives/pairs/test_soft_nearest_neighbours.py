"""Tests of the soft nearest neighbour loss against golden numbers, loops and the library."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, losses

from declutr.objectives import soft_nearest_neighbour_loss
from tests.objectives.oracles import (
    GOLDEN,
    cosine,
    golden_inputs,
    log_sum_exp,
    mean,
    normal,
    others_with_label,
    some_labels,
    squared_distance,
)

X, LABELS = golden_inputs("soft_nn", "x", "labels")


def test_golden_numbers() -> None:
    values = GOLDEN["soft_nn"]["values"]
    for tau, key in ((1.0, "tau1"), (0.5, "tau0.5")):
        loss = soft_nearest_neighbour_loss(X, LABELS, tau).item()
        assert loss == pytest.approx(values[key], abs=1e-9)
    loss = soft_nearest_neighbour_loss(X, LABELS, 0.5, "cosine").item()
    assert loss == pytest.approx(values["cosine_distance_tau0.5"], abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    classes=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    tau=st.sampled_from([0.3, 1.0]),
    kind=st.sampled_from(["squared_euclidean", "cosine"]),
)
def test_equals_loops(rows: int, classes: int, seed: int, tau: float, kind: str) -> None:
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)

    def away(i: int, j: int) -> float:
        return (1 - cosine(x[i], x[j])) if kind == "cosine" else squared_distance(x[i], x[j])

    terms = []
    for i in range(rows):
        own = [-away(i, j) / tau for j in others_with_label(labels, i, True)]
        other = [-away(i, j) / tau for j in others_with_label(labels, i, False)]
        if own:
            terms.append(log_sum_exp(own + other) - log_sum_exp(own))
    for reduction, expected in (("mean", mean(terms)), ("sum", sum(terms))):
        loss = soft_nearest_neighbour_loss(x, labels, tau, kind, reduction)
        assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    each = soft_nearest_neighbour_loss(x, labels, tau, kind, "none")
    assert each.tolist() == pytest.approx(terms, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("tau", [0.5, 1.0])
def test_equals_the_library(tau: float) -> None:
    squared = distances.LpDistance(power=2, normalize_embeddings=False)
    theirs = losses.NCALoss(softmax_scale=1 / tau, distance=squared)(X, LABELS)
    loss = soft_nearest_neighbour_loss(X, LABELS, tau)
    assert loss.item() == pytest.approx(theirs.item(), rel=1e-8)


def test_one_label_gives_zero_and_rows_alone_are_left_out() -> None:
    assert soft_nearest_neighbour_loss(X, torch.zeros(4)).item() == pytest.approx(0, abs=1e-12)
    assert soft_nearest_neighbour_loss(X, torch.arange(4)).item() == 0
    alone = torch.tensor([0, 0, 1, 2])
    assert soft_nearest_neighbour_loss(X, alone, reduction="none").shape == (2,)


def test_gradient_with_rows_left_out() -> None:
    x = X.clone().requires_grad_()
    labels = torch.tensor([0, 0, 1, 2])
    assert torch.autograd.gradcheck(lambda rows: soft_nearest_neighbour_loss(rows, labels), (x,))


def test_unknown_distances_raise() -> None:
    with pytest.raises(ValueError, match="Unknown distance 'l1': expected one of squared_euclid"):
        soft_nearest_neighbour_loss(X, LABELS, distance="l1")
