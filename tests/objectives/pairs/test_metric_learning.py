"""Tests of losses of labelled rows: contrastive, lifted structured, and soft nearest neighbours.

They are compared with golden numbers and loops.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
import torch
from hypothesis.strategies import booleans, integers, sampled_from
from pytorch_metric_learning import losses
from torch import Tensor

from declutr.objectives import (
    LiftedStructured,
    contrastive_loss,
    lifted_structured_loss,
    soft_nearest_neighbour_loss,
)
from tests.objectives import laws
from tests.objectives.oracles import (
    Golden,
    assert_reductions,
    cosine,
    distance,
    drawn,
    log_sum_exp,
    normal,
    others_with_label,
    some_labels,
    squared_distance,
)

CONTRASTIVE, SOFT, LIFTED = (
    Golden("pairs", key) for key in ("contrastive", "soft_nn", "lifted_structured")
)
X, LABELS = CONTRASTIVE.inputs("x", "labels")
BATCH: dict[str, Any] = {"rows": integers(1, 9), "classes": integers(1, 5)}


def test_golden_numbers() -> None:
    found = {f"margin{margin}_mean": contrastive_loss(X, LABELS, margin) for margin in (1, 2)}
    half = contrastive_loss(X, LABELS, 2) / 2
    total = contrastive_loss(X, LABELS, 2, "sum")
    found |= {"margin2_sum": total, "hadsell_half_margin2_mean": half}
    CONTRASTIVE.check(found)
    rows = SOFT.inputs("x", "labels")
    SOFT.check(
        {
            "tau1": soft_nearest_neighbour_loss(*rows),
            "tau0.5": soft_nearest_neighbour_loss(*rows, 0.5),
            "cosine_distance_tau0.5": soft_nearest_neighbour_loss(*rows, 0.5, "cosine"),
        },
    )
    rows = LIFTED.inputs("x", "labels")
    smooth = lifted_structured_loss(*rows)
    LIFTED.check({"smooth": smooth, "hinge_max": lifted_structured_loss(*rows, hinge=True)})
    on_the_sphere = losses.LiftedStructureLoss()(*rows)  # the library's defaults
    assert abs(smooth.item() - on_the_sphere.item()) > 1e-3


def test_differs_from_the_contrastive_loss_of_the_library() -> None:
    other = CONTRASTIVE.values["pml_style_margin2_pos_mean_plus_neg_mean_unsquared"]
    assert abs(contrastive_loss(X, LABELS, 2).item() - other) > 1e-2
    assert abs(contrastive_loss(X, LABELS).item() - losses.ContrastiveLoss()(X, LABELS)) > 1e-2


@drawn(40, **BATCH, margin=sampled_from([0.5, 2.0, 4.0]))
def test_contrastive_loss_equals_loops(rows: int, classes: int, seed: int, margin: float) -> None:
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)
    terms = []
    for i, j in combinations(range(rows), 2):
        apart = distance(x[i], x[j])
        terms.append(apart**2 if labels[i] == labels[j] else max(0.0, margin - apart) ** 2)
    assert_reductions(lambda reduction: contrastive_loss(x, labels, margin, reduction), terms)


@drawn(40, **BATCH, tau=sampled_from([0.3, 1.0]), euclidean=booleans())
def test_soft_nearest_neighbours_equal_loops(
    rows: int, classes: int, seed: int, tau: float, euclidean: bool
) -> None:
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)

    def away(i: int, j: int) -> float:
        return squared_distance(x[i], x[j]) if euclidean else 1 - cosine(x[i], x[j])

    terms = []
    for i in range(rows):
        own = [-away(i, j) / tau for j in others_with_label(labels, i, True)]
        other = [-away(i, j) / tau for j in others_with_label(labels, i, False)]
        if own:
            terms.append(log_sum_exp(own + other) - log_sum_exp(own))
    kind = "squared_euclidean" if euclidean else "cosine"
    assert_reductions(lambda r: soft_nearest_neighbour_loss(x, labels, tau, kind, r), terms)


@drawn(40, **BATCH, margin=sampled_from([0.0, 1.0, 2.5]), hinge=booleans())
def test_lifted_structured_loss_equals_loops(
    rows: int, classes: int, seed: int, margin: float, hinge: bool
) -> None:
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)
    terms = []
    for i, j in combinations(range(rows), 2):
        if labels[i] != labels[j]:
            continue
        negatives = [
            margin - distance(x[one], x[k])
            for one in (i, j)
            for k in others_with_label(labels, one, False)
        ]
        if negatives:
            hardest = max(negatives) if hinge else log_sum_exp(negatives)
            terms.append(max(0.0, distance(x[i], x[j]) + hardest) ** 2 / 2)
    assert_reductions(lambda r: lifted_structured_loss(x, labels, margin, hinge, r), terms)


@pytest.mark.parametrize("hinge", [True, False])
@pytest.mark.parametrize("pairs", [0, 1, 2, 5])
def test_without_labels_equals_a_label_for_each_pair(pairs: int, hinge: bool) -> None:
    rows = normal(2 * pairs, 3, seed=pairs).requires_grad_()
    labels = torch.arange(pairs).repeat(2)
    for reduction in ("mean", "sum", "none"):
        terms, expected = (
            lifted_structured_loss(rows, given, 2.0, hinge, reduction) for given in (None, labels)
        )
        assert terms.tolist() == pytest.approx(expected.tolist(), rel=1e-12)
        laws.assert_same_gradients(terms.sum(), expected.sum(), rows)
    halves = rows.chunk(2)
    built = LiftedStructured(2.0, hinge)
    named = built(*halves, labels=torch.arange(pairs)).item()
    assert built(*halves).item() == pytest.approx(named, rel=1e-12)  # The sums have another order.


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "contrastive": contrastive_loss,
    "lifted, hinge": lambda x, labels: lifted_structured_loss(x, labels, hinge=True),
    "lifted": lifted_structured_loss,
    "soft nearest neighbours": soft_nearest_neighbour_loss,
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_rows_with_and_without_a_term(name: str) -> None:
    """Use rows whose label no other row has, equal rows, and batches with a single label."""
    loss, rows = LOSSES[name], normal(7, 3, seed=5).requires_grad_()
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 3])
    laws.assert_gradients(lambda x: loss(x, labels), rows)
    equal = torch.ones(7, 3, requires_grad=True)
    assert torch.autograd.grad(loss(equal, labels), equal)[0].isfinite().all()
    if name != "contrastive":  # in which every pair has a term
        for nothing in (torch.arange(7), 0 * labels):
            value = loss(rows, nothing)
            assert value.item() == pytest.approx(0, abs=1e-12)
            assert torch.autograd.grad(value, rows)[0].abs().max() < 1e-12
        laws.assert_zero_with_a_graph(loss(rows[:1], labels[:1]), rows)


def test_separated_classes_have_no_loss() -> None:
    x = torch.tensor([[0.0, 0], [0, 0], [5, 0], [5, 0]], requires_grad=True)
    laws.assert_zero_with_a_graph(contrastive_loss(x, LABELS, 5.0), x)
    assert contrastive_loss(x, LABELS, 6.0).item() == pytest.approx(4 / 6)  # four pairs of six


def test_memory_is_quadratic_with_large_classes() -> None:
    classes = torch.arange(256) % 4
    saved = laws.largest_saved(lambda x: lifted_structured_loss(x, classes), normal(256, 4).float())
    assert saved <= 2 * 256**2


def test_unknown_distances_raise() -> None:
    with pytest.raises(ValueError, match="Unknown distance 'l1': expected one of squared_euclid"):
        soft_nearest_neighbour_loss(X, LABELS, distance="l1")
