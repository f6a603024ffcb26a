"""Tests of triplet losses against golden numbers, loops over triplets, torch and the library."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, losses, reducers

from declutr.objectives import Triplet, all_triplets_loss, triplet_loss
from tests.objectives.oracles import (
    GOLDEN,
    distance,
    doubles,
    golden_inputs,
    largest_saved,
    mean,
    normal,
    others_with_label,
    some_labels,
    squared_distance,
)

ANCHOR, POSITIVE, NEGATIVE = golden_inputs("triplet", "anchor", "positive", "negative")
VALUES = GOLDEN["triplet"]["values"]


def test_golden_numbers() -> None:
    triplets = ANCHOR, POSITIVE, NEGATIVE
    terms = triplet_loss(*triplets, squared=True, reduction="none")
    assert torch.allclose(terms, doubles(VALUES["squared_terms"]), atol=1e-9)
    for reduction in ("sum", "mean"):
        loss = triplet_loss(*triplets, squared=True, reduction=reduction).item()
        assert loss == pytest.approx(VALUES[f"squared_{reduction}"], abs=1e-9)
        objective = Triplet(squared=True, reduction=reduction)
        assert objective(*triplets).item() == pytest.approx(loss, abs=1e-12)
    assert triplet_loss(*triplets).item() == pytest.approx(VALUES["unsquared_mean"], abs=1e-9)
    assert Triplet()(*triplets).item() == pytest.approx(VALUES["unsquared_mean"], abs=1e-9)


def test_the_mean_includes_triplets_without_a_loss() -> None:
    """Compare with the library, which averages only the terms above zero: 0.4 here."""
    loss = triplet_loss(ANCHOR, POSITIVE, NEGATIVE, squared=True).item()
    assert abs(loss - 0.4) > 1e-4


def test_equals_torch() -> None:
    theirs = torch.nn.TripletMarginLoss(margin=0.7, eps=0)(ANCHOR, POSITIVE, NEGATIVE)
    assert triplet_loss(ANCHOR, POSITIVE, NEGATIVE, 0.7).item() == pytest.approx(theirs.item())


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 9),
    classes=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    margin=st.sampled_from([0.0, 0.2, 1.0, 50.0]),
    squared=st.booleans(),
)
def test_all_triplets_equal_loops(
    rows: int, classes: int, seed: int, margin: float, squared: bool
) -> None:
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)
    away = squared_distance if squared else distance
    terms = [
        max(0.0, away(x[i], x[j]) - away(x[i], x[k]) + margin)
        for i in range(rows)
        for j in others_with_label(labels, i, True)
        for k in others_with_label(labels, i, False)
    ]
    for reduction, expected in (("mean", mean(terms)), ("sum", sum(terms))):
        loss = all_triplets_loss(x, labels, margin, squared, reduction)
        assert loss.item() == pytest.approx(expected, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("power", [1, 2])
def test_equals_the_library(power: int) -> None:
    x, labels = normal(12, 4), some_labels(12, 3, 0)
    plain = distances.LpDistance(power=power, normalize_embeddings=False)
    theirs = losses.TripletMarginLoss(1.0, distance=plain, reducer=reducers.MeanReducer())
    results = []
    for loss in (
        lambda r: all_triplets_loss(r, labels, 1.0, power == 2),
        lambda r: theirs(r, labels),
    ):
        rows = x.clone().requires_grad_()
        value = loss(rows)
        value.backward()
        results.append((value, rows.grad))
    for ours, other in zip(*results, strict=True):
        assert torch.allclose(ours, other, rtol=1e-8, atol=1e-10)


def test_ties_and_duplicates() -> None:
    x = ANCHOR[[0, 0, 0, 0, 1, 1]].clone().requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, 0, 1])
    loss = all_triplets_loss(x, labels, margin=0.0)
    loss.backward()
    assert loss.isfinite() and x.grad.isfinite().all()
    equal = torch.ones(6, 3, dtype=torch.float64)
    assert all_triplets_loss(equal, labels, margin=0.5).item() == pytest.approx(0.5)
    assert all_triplets_loss(equal, labels, margin=0.0).item() == 0


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_labels_without_triplets_give_zero(labels: list[int]) -> None:
    x = ANCHOR.clone().requires_grad_()
    loss = all_triplets_loss(x, torch.tensor(labels))
    loss.backward()
    assert loss.item() == 0 and not x.grad.any()


@pytest.mark.parametrize("squared", [True, False])
def test_gradcheck(squared: bool) -> None:
    x, labels = normal(7, 3, seed=2).requires_grad_(), torch.tensor([0, 0, 0, 1, 1, 2, 3])
    assert torch.autograd.gradcheck(
        lambda rows: all_triplets_loss(rows, labels, 1.0, squared), (x,)
    )
    inputs = [part.clone().requires_grad_() for part in (ANCHOR, POSITIVE, NEGATIVE)]
    assert torch.autograd.gradcheck(lambda *rows: triplet_loss(*rows, 1.0, squared), inputs)


def test_an_anchor_on_its_positive_has_a_gradient() -> None:
    x = ANCHOR.clone().requires_grad_()
    triplet_loss(x, x.detach().clone(), x.detach() + 0.1).backward()
    assert x.grad.isfinite().all()


def test_no_given_triplets_give_zero() -> None:
    none = torch.zeros(0, 3)
    assert triplet_loss(none, none, none).item() == 0


def test_memory_is_quadratic_with_large_classes() -> None:
    """Use four classes of 64 rows: 3 million triplets, but matrices of 65 thousand elements."""
    x = normal(256, 4).float().requires_grad_()
    with largest_saved() as largest:
        all_triplets_loss(x, torch.arange(256) % 4).backward()
    assert largest[0] <= 2 * 256**2


def test_normalised_rows_do_not_depend_on_their_length() -> None:
    objective = Triplet(margin=0.2, squared=True, normalize_embeddings=True)
    scaled = objective(3 * ANCHOR, POSITIVE / 5, 2 * NEGATIVE)
    assert scaled.item() == pytest.approx(objective(ANCHOR, POSITIVE, NEGATIVE).item())


def test_invalid_arguments_raise() -> None:
    with pytest.raises(
        ValueError, match=r"must all be \(N, d\); got \(4, 3\), \(4, 3\) and \(3, 3"
    ):
        triplet_loss(ANCHOR, POSITIVE, NEGATIVE[:3])
    with pytest.raises(ValueError, match=r"Unknown reduction 'none'.*never made"):
        all_triplets_loss(ANCHOR, torch.arange(4), reduction="none")
