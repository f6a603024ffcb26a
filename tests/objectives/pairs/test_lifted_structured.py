"""Tests of the lifted structured loss against golden numbers, loops and the library."""

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, losses

from declutr.objectives import LiftedStructured, lifted_structured_loss
from tests.objectives.oracles import (
    GOLDEN,
    distance,
    golden_inputs,
    largest_saved,
    log_sum_exp,
    mean,
    normal,
    others_with_label,
    some_labels,
)

X, LABELS = golden_inputs("lifted_structured", "x", "labels")


def test_golden_numbers() -> None:
    values = GOLDEN["lifted_structured"]["values"]
    assert lifted_structured_loss(X, LABELS).item() == pytest.approx(values["smooth"], abs=1e-9)
    hinge = lifted_structured_loss(X, LABELS, hinge=True).item()
    assert hinge == pytest.approx(values["hinge_max"], abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    classes=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    margin=st.sampled_from([0.0, 1.0, 2.5]),
    hinge=st.booleans(),
)
def test_equals_loops(rows: int, classes: int, seed: int, margin: float, hinge: bool) -> None:
    x, labels = normal(rows, 3, seed=seed), some_labels(rows, classes, seed)
    terms = []
    for i, j in combinations(range(rows), 2):
        if labels[i] != labels[j]:
            continue
        negatives = [margin - distance(x[i], x[k]) for k in others_with_label(labels, i, False)]
        negatives += [margin - distance(x[j], x[k]) for k in others_with_label(labels, j, False)]
        if negatives:
            hardest = max(negatives) if hinge else log_sum_exp(negatives)
            terms.append(max(0.0, distance(x[i], x[j]) + hardest) ** 2 / 2)
    for reduction, expected in (("mean", mean(terms)), ("sum", sum(terms))):
        loss = lifted_structured_loss(x, labels, margin, hinge, reduction)
        assert loss.item() == pytest.approx(expected, rel=1e-8, abs=1e-9)
    each = lifted_structured_loss(x, labels, margin, hinge, "none")
    assert each.tolist() == pytest.approx(terms, rel=1e-8, abs=1e-9)


def test_equals_the_library() -> None:
    plain = distances.LpDistance(normalize_embeddings=False)
    theirs = losses.LiftedStructureLoss(neg_margin=1, distance=plain)(X, LABELS)
    assert lifted_structured_loss(X, LABELS).item() == pytest.approx(theirs.item())
    on_the_sphere = losses.LiftedStructureLoss()(X, LABELS)  # the library's defaults
    assert abs(lifted_structured_loss(X, LABELS).item() - on_the_sphere.item()) > 1e-3


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
        gradients = [torch.autograd.grad(loss.sum(), rows)[0] for loss in (terms, expected)]
        assert torch.allclose(*gradients, rtol=1e-10, atol=1e-12)
    halves = rows.chunk(2)
    built = LiftedStructured(2.0, hinge)
    named = built(*halves, labels=torch.arange(pairs)).item()
    assert built(*halves).item() == pytest.approx(named, rel=1e-12)  # The sums have another order.


@pytest.mark.parametrize("hinge", [True, False])
@pytest.mark.parametrize("labels", [[0, 0, 0, 0], [0, 1, 2, 3]])
def test_without_positives_or_negatives_gives_zero(labels: list[int], hinge: bool) -> None:
    x = X.clone().requires_grad_()
    loss = lifted_structured_loss(x, torch.tensor(labels), hinge=hinge)
    loss.backward()
    assert loss.item() == 0 and not x.grad.any()


@pytest.mark.parametrize("hinge", [True, False])
def test_gradcheck(hinge: bool) -> None:
    x = normal(7, 3, seed=5).requires_grad_()
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 3])
    assert torch.autograd.gradcheck(
        lambda rows: lifted_structured_loss(rows, labels, hinge=hinge), (x,)
    )


def test_memory_is_quadratic_with_large_classes() -> None:
    x = normal(256, 4).float().requires_grad_()
    with largest_saved() as largest:
        lifted_structured_loss(x, torch.arange(256) % 4).backward()
    assert largest[0] <= 2 * 256**2
