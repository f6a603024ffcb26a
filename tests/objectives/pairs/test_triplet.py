"""Tests of triplet losses against golden numbers, loops over triplets, and torch."""

import pytest
import torch
from hypothesis.strategies import booleans, integers, sampled_from

from declutr.objectives import Triplet, all_triplets_loss, triplet_loss
from tests.objectives import laws
from tests.objectives.oracles import (
    Golden,
    assert_reductions,
    distance,
    doubles,
    drawn,
    normal,
    others_with_label,
    some_labels,
    squared_distance,
)

GOLDEN = Golden("pairs", "triplet")
TRIPLETS = ANCHOR, POSITIVE, NEGATIVE = GOLDEN.inputs("anchor", "positive", "negative")


def test_golden_numbers() -> None:
    terms = triplet_loss(*TRIPLETS, squared=True, reduction="none")
    assert torch.allclose(terms, doubles(GOLDEN.values["squared_terms"]), atol=1e-9)
    for unsquared in (triplet_loss, Triplet()):
        GOLDEN.check({"unsquared_mean": unsquared(*TRIPLETS)})
    for reduction in ("sum", "mean"):
        options = {"squared": True, "reduction": reduction}
        for loss in (triplet_loss(*TRIPLETS, **options), Triplet(**options)(*TRIPLETS)):
            GOLDEN.check({f"squared_{reduction}": loss})
    # The library averages only the terms above zero: 0.4 here.
    assert abs(loss.item() - 0.4) > 1e-4


def test_equals_torch() -> None:
    theirs = torch.nn.TripletMarginLoss(margin=0.7, eps=0)(*TRIPLETS)
    assert triplet_loss(*TRIPLETS, 0.7).item() == pytest.approx(theirs.item())


@drawn(
    60,
    rows=integers(1, 9),
    classes=integers(1, 5),
    margin=sampled_from([0.0, 0.2, 1.0, 50.0]),
    squared=booleans(),
)
def test_all_triplets_equal_loops(
    rows: int, classes: int, seed: int, margin: float, squared: bool
) -> None:
    """Include batches without triplets, whose loss is 0."""
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)
    away = squared_distance if squared else distance
    terms = [
        max(0.0, away(x[i], x[j]) - away(x[i], x[k]) + margin)
        for i in range(rows)
        for j in others_with_label(labels, i, True)
        for k in others_with_label(labels, i, False)
    ]
    assert_reductions(lambda r: all_triplets_loss(x, labels, margin, squared, r), terms, "mean sum")


def test_ties_and_duplicates() -> None:
    x = ANCHOR[[0, 0, 0, 0, 1, 1]].clone().requires_grad_()
    labels = torch.tensor([0, 0, 1, 1, 0, 1])
    loss = all_triplets_loss(x, labels, margin=0.0)
    assert loss.isfinite() and torch.autograd.grad(loss, x)[0].isfinite().all()
    equal = torch.ones(6, 3, dtype=torch.float64)
    assert all_triplets_loss(equal, labels, margin=0.5).item() == pytest.approx(0.5)
    assert all_triplets_loss(equal, labels, margin=0.0).item() == 0


@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_without_triplets_the_loss_is_zero_with_a_graph(labels: list[int]) -> None:
    x = ANCHOR.clone().requires_grad_()
    laws.assert_zero_with_a_graph(all_triplets_loss(x, torch.tensor(labels)), x)
    laws.assert_zero_with_a_graph(triplet_loss(x[:0], x[:0], x[:0]), x)


@pytest.mark.parametrize("squared", [True, False])
def test_gradients(squared: bool) -> None:
    x, labels = normal(7, 3, seed=2), torch.tensor([0, 0, 0, 1, 1, 2, 3])
    laws.assert_gradients(lambda rows: all_triplets_loss(rows, labels, 1.0, squared), x)
    laws.assert_gradients(lambda *rows: triplet_loss(*rows, 1.0, squared), *TRIPLETS)


def test_an_anchor_on_its_positive_has_a_gradient() -> None:
    x = ANCHOR.clone().requires_grad_()
    triplet_loss(x, x.detach().clone(), x.detach() + 0.1).backward()
    assert x.grad.isfinite().all()


def test_memory_is_quadratic_with_large_classes() -> None:
    """Use four classes of 64 rows: 3 million triplets, but matrices of 65 thousand elements."""
    classes = torch.arange(256) % 4
    saved = laws.largest_saved(lambda x: all_triplets_loss(x, classes), normal(256, 4).float())
    assert saved <= 2 * 256**2


def test_given_triplets_are_normalised_too() -> None:
    objective = Triplet(margin=0.2, squared=True, normalize_embeddings=True)
    scaled = objective(3 * ANCHOR, POSITIVE / 5, 2 * NEGATIVE)
    assert scaled.item() == pytest.approx(objective(*TRIPLETS).item())


def test_invalid_arguments_raise() -> None:
    shapes = r"must all be \(N, d\); got \(4, 3\), \(4, 3\) and \(3, 3"
    with pytest.raises(ValueError, match=shapes):
        triplet_loss(ANCHOR, POSITIVE, NEGATIVE[:3])
    with pytest.raises(ValueError, match=r"Unknown reduction 'none'.*never made"):
        all_triplets_loss(ANCHOR, torch.arange(4), reduction="none")
