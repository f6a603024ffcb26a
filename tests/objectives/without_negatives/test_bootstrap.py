"""Tests of BYOL against golden numbers and loops in Python."""

import math

import pytest
import torch
from allennlp.common import Params
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.objectives import Objective
from declutr.objectives.without_negatives.bootstrap import (
    BYOL,
    byol_loss,
    symmetric_byol_loss,
    target_momentum,
)
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    assert_zero_with_a_graph,
    doubles,
    golden,
    largest_saved,
    permuted,
    rescaled,
    views,
)

GOLDEN = golden("bootstrap")["byol"]
P1, P2, T1, T2 = (
    doubles(GOLDEN["inputs"][key])
    for key in ("pred_view1", "pred_view2", "target_view1", "target_view2")
)


def test_golden_numbers() -> None:
    values = GOLDEN["values"]
    loss = symmetric_byol_loss(P1, P2, T1, T2).item()
    assert loss == pytest.approx(values["loss"], abs=1e-9)
    one = BYOL()(P1, T2).item()
    assert one == pytest.approx(values["one_direction_mean"], abs=1e-9)
    assert one + BYOL()(P2, T1).item() == pytest.approx(loss)
    assert abs(loss - values["loss_if_elementwise_mse_mean_WRONG"]) > 1e-4
    for step in (0, 25, 50):
        expected = values[f"tau_at_step_{step}_of_100"]
        assert target_momentum(step, 100) == pytest.approx(expected, abs=1e-9)


def test_the_schedule_rises_to_one() -> None:
    taus = [target_momentum(step, 10, base=0.9) for step in range(11)]
    assert taus == sorted(taus) and taus[0] == pytest.approx(0.9) and taus[-1] == 1
    assert target_momentum(11, 10) == target_momentum(1, 1) == 1
    with pytest.raises(ValueError, match="steps >= 1 and step >= 0, got 0 and 3"):
        target_momentum(3, 0)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_equals_the_formula_in_loops(n: int, seed: int) -> None:
    predictions, targets = views(n, 3, seed)
    terms = []
    for p, t in zip(predictions.tolist(), targets.tolist(), strict=True):
        p, t = ([v / math.hypot(*row) for v in row] for row in (p, t))
        terms.append(sum((a - b) ** 2 for a, b in zip(p, t, strict=True)))
    found = byol_loss(predictions, targets, "none")
    assert found.tolist() == pytest.approx(terms, abs=1e-12)
    assert byol_loss(predictions, targets).item() == pytest.approx(sum(terms) / n)
    for changed in (permuted(n, seed, predictions, targets), rescaled(seed, predictions, targets)):
        assert byol_loss(*changed, "sum").item() == pytest.approx(sum(terms))


def test_smallest_and_largest_values() -> None:
    x, y = views(4)
    assert symmetric_byol_loss(x, y, y, x).item() == pytest.approx(0, abs=1e-12)
    assert symmetric_byol_loss(x, y, -y, -x).item() == pytest.approx(8)


def test_targets_get_no_gradient() -> None:
    predictions, targets = (view.requires_grad_() for view in views(3))
    BYOL(reduction="sum")(predictions, targets).backward()
    assert predictions.grad is not None and predictions.grad.any() and targets.grad is None


def test_gradients_and_hard_batches() -> None:
    predictions, targets = views(3)
    assert_gradients(lambda x: byol_loss(x, targets), predictions)
    assert_gradients(lambda x: byol_loss(x, targets), predictions[:1].expand(3, 4))
    assert_finite_where_it_is_hard(byol_loss)
    assert_full_precision(byol_loss, *views(16))
    empty = predictions.requires_grad_()
    assert_zero_with_a_graph(byol_loss(empty[:0], targets[:0]), empty)
    assert largest_saved(lambda x: byol_loss(x, views(512)[1]), views(512)[0]) <= 512 * 4


def test_registered_name() -> None:
    built = Objective.from_params(Params({"type": "byol", "reduction": "sum"}))
    assert isinstance(built, BYOL) and built.min_pairs == 1
    assert built(P1, T2).item() == pytest.approx(2 * GOLDEN["values"]["one_direction_mean"])
    with pytest.raises(ValueError, match=r"got \(2, 3\) and \(1, 3\)"):
        built(P1, torch.ones(1, 3))
