"""Tests of debiased and hard-negative contrast against golden numbers and loops in Python."""

import math

import pytest
import torch
from hypothesis.strategies import integers, sampled_from
from torch import Tensor
from torch.nn.functional import normalize

from declutr.objectives.pairs.debiased import (
    DebiasedContrastive,
    HardNegative,
    debiased_loss,
    hard_negative_loss,
)
from tests.objectives import laws
from tests.objectives.oracles import Golden, assert_reductions, cosine, doubles, drawn, views

DEBIASED, HARD = (Golden("debiased", key) for key in ("debiased", "hard_negative"))
Z = DEBIASED.inputs("z1", "z2")


def naive_terms(
    first: Tensor, second: Tensor, tau: float, tau_plus: float, beta: float
) -> tuple[list[float], int]:
    """Return the terms of all rows, and the number of them that are on the floor."""
    rows, n = torch.cat([first, second]), len(first)
    terms, clamped = [], 0
    for i, row in enumerate(rows):
        scores = [cosine(row, other) / tau for other in rows]
        positive = math.exp(scores[(i + n) % (2 * n)])
        others = [s for k, s in enumerate(scores) if k % n != i % n]
        weights = [math.exp(beta * s) for s in others]
        total = sum(w * math.exp(s) for w, s in zip(weights, others, strict=True))
        total *= len(others) / sum(weights)
        corrected = (total - tau_plus * len(others) * positive) / (1 - tau_plus)
        floor = len(others) * math.exp(-1 / tau)
        clamped += corrected < floor
        terms.append(-math.log(positive / (positive + max(corrected, floor))))
    return terms, clamped


def test_golden_numbers() -> None:
    values, most = DEBIASED.values, debiased_loss(*Z, tau_plus=0.3)
    plain = debiased_loss(*Z, tau_plus=0.0)
    found = {"loss": debiased_loss(*Z), "loss_tau_plus_0_equals_ntxent_mean": plain}
    DEBIASED.check({**found, "loss_tau_plus_0.3": most, "floor_N_exp": 6 * math.exp(-2)})
    terms, clamped = naive_terms(*Z, 0.5, 0.3, 0.0)
    assert debiased_loss(*Z, tau_plus=0.3, reduction="none").tolist() == pytest.approx(terms)
    assert clamped == values["clamped_rows_at_0.3"]
    for beta, key in ((1.0, "beta1"), (2.0, "beta2"), (0.0, "beta0_equals_debiased")):
        for detach in (False, True):
            HARD.check({key: hard_negative_loss(*Z, beta=beta, detach_weights=detach)})
            HARD.check({key: HardNegative(beta=beta, detach_weights=detach)(*Z)})
    assert DebiasedContrastive(reduction="sum")(*Z).item() == pytest.approx(8 * values["loss"])


@drawn(
    50,
    n=integers(2, 7),
    tau=sampled_from([0.05, 0.2, 0.5, 2.0]),
    tau_plus=sampled_from([0.0, 0.05, 0.3]),
    beta=sampled_from([0.0, 0.5, 2.0]),
)
def test_equals_the_formula_in_loops(
    n: int, seed: int, tau: float, tau_plus: float, beta: float
) -> None:
    batch = views(n, 4, seed)
    terms, _ = naive_terms(*batch, tau, tau_plus, beta)
    assert_reductions(lambda r: hard_negative_loss(*batch, tau, tau_plus, beta, reduction=r), terms)


def test_on_the_floor_negatives_have_no_gradient() -> None:
    """Use identical positives and far negatives, with which all rows are on the floor."""
    first, second = doubles([[1.0, 0.0], [-1.0, 0.0]]), doubles([[1.0, 0.1], [-1.0, 0.1]])
    assert naive_terms(first, second, 0.5, 0.3, 1.0)[1] == 4
    angles = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    turned = torch.stack([angles.cos(), angles.sin()], dim=1) * doubles([[1.0], [-1.0]])
    hard_negative_loss(turned, turned.clone(), tau_plus=0.3).backward()
    assert angles.grad is not None and angles.grad.abs().max() < 1e-12  # positives cannot improve


def test_weights_may_be_constants() -> None:
    """Check that the gradient is that of a sum with given weights."""
    batch = [view.requires_grad_() for view in views(4)]
    through, constant = (
        torch.autograd.grad(hard_negative_loss(*batch, 0.5, 0.0, 2.0, detach), batch)[0]
        for detach in (False, True)
    )
    assert (through - constant).abs().max() > 1e-3
    rows = normalize(torch.cat(batch), dim=-1)
    scores, index = rows @ rows.T / 0.5, torch.arange(8)
    others = scores[(index.unsqueeze(1) - index) % 4 != 0].view(8, 6)
    weights = (2 * others.detach()).softmax(dim=1)
    negatives = 6 * (weights * others.exp()).sum(dim=1)
    positive = torch.cat([scores.diagonal(4), scores.diagonal(-4)]).exp()
    expected = torch.autograd.grad(-(positive / (positive + negatives)).log().mean(), batch)[0]
    assert torch.allclose(constant, expected)


@pytest.mark.parametrize("tau_plus", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_gradients(tau_plus: float, beta: float) -> None:
    batch = views(4, 3, seed=2)
    laws.assert_gradients(lambda x, y: hard_negative_loss(x, y, 0.5, tau_plus, beta), *batch)


@pytest.mark.parametrize("tau", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("tau_plus", [0.0, 0.1, 0.9])
def test_values_and_gradients_of_hard_batches_are_finite(tau: float, tau_plus: float) -> None:
    laws.assert_finite(lambda x, y: hard_negative_loss(x, y, tau, tau_plus))


def test_a_single_pair_has_a_term_of_zero_for_both_rows() -> None:
    assert hard_negative_loss(*views(1), reduction="none").tolist() == [0, 0]
