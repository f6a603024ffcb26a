"""Tests of BYOL against golden numbers and loops in Python."""

import math

import pytest
from hypothesis.strategies import integers

from declutr.objectives.without_negatives.bootstrap import (
    BYOL,
    byol_loss,
    symmetric_byol_loss,
    target_momentum,
)
from tests.objectives import laws
from tests.objectives.oracles import Golden, assert_reductions, drawn, views

GOLDEN = Golden("bootstrap", "byol")
NAMES = "pred_view1 pred_view2 target_view1 target_view2"
P1, P2, T1, T2 = GOLDEN.inputs(*NAMES.split())


def test_golden_numbers() -> None:
    loss = symmetric_byol_loss(P1, P2, T1, T2)
    one = BYOL()(P1, T2)
    momenta = {f"tau_at_step_{step}_of_100": target_momentum(step, 100) for step in (0, 25, 50)}
    GOLDEN.check({"loss": loss, "one_direction_mean": one, **momenta})
    assert one.item() + BYOL()(P2, T1).item() == pytest.approx(loss.item())
    assert BYOL(reduction="sum")(P1, T2).item() == pytest.approx(2 * one.item())
    assert abs(loss.item() - GOLDEN.values["loss_if_elementwise_mse_mean_WRONG"]) > 1e-4


def test_the_schedule_rises_to_one() -> None:
    taus = [target_momentum(step, 10, base=0.9) for step in range(11)]
    assert taus == sorted(taus) and taus[0] == pytest.approx(0.9) and taus[-1] == 1
    assert target_momentum(11, 10) == target_momentum(1, 1) == 1
    with pytest.raises(ValueError, match="steps >= 1 and step >= 0, got 0 and 3"):
        target_momentum(3, 0)


@drawn(30, n=integers(1, 6))
def test_equals_the_formula_in_loops(n: int, seed: int) -> None:
    predictions, targets = views(n, 3, seed)
    terms = []
    for p, t in zip(predictions.tolist(), targets.tolist(), strict=True):
        p, t = ([v / math.hypot(*row) for v in row] for row in (p, t))
        terms.append(sum((a - b) ** 2 for a, b in zip(p, t, strict=True)))
    assert_reductions(lambda reduction: byol_loss(predictions, targets, reduction), terms)


def test_smallest_and_largest_values() -> None:
    x, y = views(4)
    assert symmetric_byol_loss(x, y, y, x).item() == pytest.approx(0, abs=1e-12)
    assert symmetric_byol_loss(x, y, -y, -x).item() == pytest.approx(8)


def test_only_predictions_get_a_gradient() -> None:
    predictions, targets = (view.requires_grad_() for view in views(3))
    BYOL(reduction="sum")(predictions, targets).backward()
    assert predictions.grad is not None and predictions.grad.any() and targets.grad is None
    laws.assert_gradients(lambda x: byol_loss(x, targets), predictions)
    laws.assert_gradients(lambda x: byol_loss(x, targets), predictions[:1].expand(3, 4))
    laws.assert_zero_with_a_graph(byol_loss(predictions[:0], targets[:0]), predictions)
