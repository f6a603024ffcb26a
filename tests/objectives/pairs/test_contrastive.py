"""Tests of the contrastive loss against golden numbers and loops over pairs."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses

from declutr.objectives import contrastive_loss
from tests.objectives.oracles import GOLDEN, distance, golden_inputs, mean, normal, some_labels

X, LABELS = golden_inputs("contrastive", "x", "labels")
VALUES = GOLDEN["contrastive"]["values"]


def test_golden_numbers() -> None:
    for margin in (1, 2):
        loss = contrastive_loss(X, LABELS, margin).item()
        assert loss == pytest.approx(VALUES[f"margin{margin}_mean"], abs=1e-9)
    total = contrastive_loss(X, LABELS, 2, "sum").item()
    assert total == pytest.approx(VALUES["margin2_sum"], abs=1e-9)
    half = VALUES["hadsell_half_margin2_mean"]
    assert contrastive_loss(X, LABELS, 2).item() == pytest.approx(2 * half, abs=1e-9)


def test_differs_from_the_contrastive_loss_of_the_library() -> None:
    other = VALUES["pml_style_margin2_pos_mean_plus_neg_mean_unsquared"]
    assert abs(contrastive_loss(X, LABELS, 2).item() - other) > 1e-2
    assert abs(contrastive_loss(X, LABELS).item() - losses.ContrastiveLoss()(X, LABELS)) > 1e-2


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    classes=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    margin=st.sampled_from([0.5, 2.0, 4.0]),
)
def test_equals_loops(rows: int, classes: int, seed: int, margin: float) -> None:
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)
    terms = []
    for i, j in combinations(range(rows), 2):
        apart = distance(x[i], x[j])
        terms.append(apart**2 if labels[i] == labels[j] else max(0.0, margin - apart) ** 2)
    each = contrastive_loss(x, labels, margin, "none")
    assert each.tolist() == pytest.approx(terms, rel=1e-8, abs=1e-9)
    for reduction, expected in (("mean", mean(terms)), ("sum", sum(terms))):
        loss = contrastive_loss(x, labels, margin, reduction)
        assert loss.item() == pytest.approx(expected, rel=1e-8, abs=1e-9)


def test_separated_classes_have_no_loss() -> None:
    x = torch.tensor([[0.0, 0], [0, 0], [5, 0], [5, 0]], requires_grad=True)
    loss = contrastive_loss(x, LABELS, 5.0)
    loss.backward()
    assert loss.item() == 0 and not x.grad.any()
    assert contrastive_loss(x, LABELS, 6.0).item() == pytest.approx(4 / 6)  # four pairs of six


def test_collapsed_negatives_have_a_finite_gradient() -> None:
    x = torch.ones(4, 3, requires_grad=True)
    contrastive_loss(x, LABELS).backward()
    assert x.grad.isfinite().all()


def test_gradcheck() -> None:
    x, labels = normal(6, 3, seed=4).requires_grad_(), torch.tensor([0, 0, 0, 1, 1, 2])
    assert torch.autograd.gradcheck(lambda rows: contrastive_loss(rows, labels, 2.0), (x,))
