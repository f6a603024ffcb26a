"""Tests of SupCon against golden numbers, loops, NT-Xent and the library."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import losses

from declutr.objectives import NTXent, SupCon, sup_con_loss
from tests.objectives.oracles import (
    GOLDEN,
    cosine,
    golden_inputs,
    log_sum_exp,
    mean,
    normal,
    others_with_label,
    some_labels,
)

X, LABELS = golden_inputs("supcon", "x", "labels")
VALUES = GOLDEN["supcon"]["values"]


def test_golden_numbers() -> None:
    for tau in (0.1, 0.5):
        loss = sup_con_loss(X, LABELS, tau).item()
        assert loss == pytest.approx(VALUES[f"tau{tau}_mean"], abs=1e-9)
    total = sup_con_loss(X, LABELS, 0.5, "sum").item()
    assert total == pytest.approx(VALUES["tau0.5_sum"], abs=1e-9)
    unique = sup_con_loss(X, torch.arange(4).repeat(2), 0.5).item()
    assert unique == pytest.approx(VALUES["ntxent_equality_unique_labels_tau0.5"], abs=1e-9)


def test_differs_from_the_scaled_and_the_misprinted_loss() -> None:
    assert (
        abs(sup_con_loss(X, LABELS).item() - VALUES["tau0.1_mean_x_(0.1/0.07)_reference_code"]) > 1
    )
    wrong = VALUES["tau0.5_sum_survey_literal_normaliser_WRONG"]
    assert abs(sup_con_loss(X, LABELS, 0.5, "sum").item() - wrong) > 1e-2


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    classes=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    tau=st.sampled_from([0.1, 1.0]),
)
def test_equals_loops(rows: int, classes: int, seed: int, tau: float) -> None:
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)
    terms = []
    for i in range(rows):
        own = [cosine(x[i], x[j]) / tau for j in others_with_label(labels, i, True)]
        other = [cosine(x[i], x[j]) / tau for j in others_with_label(labels, i, False)]
        if own and other:
            everything = log_sum_exp(own + other)
            terms.append(mean([everything - score for score in own]))
    each = sup_con_loss(x, labels, tau, "none")
    assert each.tolist() == pytest.approx(terms, rel=1e-9, abs=1e-9)
    for reduction, expected in (("mean", mean(terms)), ("sum", sum(terms))):
        loss = sup_con_loss(x, labels, tau, reduction)
        assert loss.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 0, 0, 1, 1], [0, 0, 0, 1, 1, 2, 3, 4]])
def test_equals_the_library(labels: list[int]) -> None:
    theirs = losses.SupConLoss(temperature=0.3)(X, torch.tensor(labels))
    loss = sup_con_loss(X, torch.tensor(labels), 0.3)
    assert loss.item() == pytest.approx(theirs.item(), rel=1e-9)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_with_one_positive_a_row_it_is_nt_xent(reduction: str) -> None:
    views = normal(6, 4), normal(6, 4, seed=1)
    expected = NTXent(0.2, reduction)(*views).item()
    assert SupCon(0.2, reduction)(*views).item() == pytest.approx(expected, rel=1e-9)


def test_rows_without_a_positive_are_only_candidates() -> None:
    alone = torch.tensor([0, 0, 1, 1, 2, 3, 4, 5])
    assert sup_con_loss(X, alone, reduction="none").shape == (4,)
    x = X.clone().requires_grad_()
    loss = sup_con_loss(x, torch.arange(8))
    loss.backward()
    assert loss.item() == 0 and not x.grad.any()


def test_a_single_label_gives_zero() -> None:
    assert sup_con_loss(X, torch.zeros(8)).item() == 0


def test_gradcheck_with_rows_without_a_positive() -> None:
    x, labels = normal(6, 3).requires_grad_(), torch.tensor([0, 0, 0, 1, 1, 2])
    assert torch.autograd.gradcheck(lambda rows: sup_con_loss(rows, labels, 0.4), (x,))
