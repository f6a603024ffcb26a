"""Tests of debiased and hard-negative contrast against golden numbers and loops in Python."""

import math
from itertools import pairwise

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import NTXent, Objective
from declutr.objectives.pairs.debiased import (
    DebiasedContrastive,
    HardNegative,
    debiased_loss,
    hard_negative_loss,
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

DEBIASED, HARD = (golden("debiased")[key] for key in ("debiased", "hard_negative"))
Z = [doubles(DEBIASED["inputs"][key]) for key in ("z1", "z2")]


def naive_terms(
    first: Tensor, second: Tensor, tau: float, tau_plus: float, beta: float
) -> tuple[list[float], int]:
    """Return the terms of all rows, and the number of them that are on the floor."""
    rows = [
        [value / math.sqrt(sum(v * v for v in row)) for value in row]
        for row in torch.cat([first, second]).tolist()
    ]
    n, terms, clamped = len(first), [], 0
    for i, row in enumerate(rows):
        scores = [sum(a * b for a, b in zip(row, other, strict=True)) / tau for other in rows]
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
    values = DEBIASED["values"]
    assert debiased_loss(*Z).item() == pytest.approx(values["loss"], abs=1e-9)
    plain = debiased_loss(*Z, tau_plus=0.0).item()
    assert plain == pytest.approx(values["loss_tau_plus_0_equals_ntxent_mean"], abs=1e-9)
    most = debiased_loss(*Z, tau_plus=0.3)
    assert most.item() == pytest.approx(values["loss_tau_plus_0.3"], abs=1e-9)
    floor = 6 * math.exp(-2)
    assert floor == pytest.approx(values["floor_N_exp"], abs=1e-9)
    terms = debiased_loss(*Z, tau_plus=0.3, reduction="none")
    rows = torch.nn.functional.normalize(torch.cat(Z), dim=-1)
    positive = (2 * (rows * rows.roll(4, 0)).sum(dim=1)).exp()
    on_floor = torch.isclose(terms, -(positive / (positive + floor)).log())
    assert int(on_floor.sum()) == values["clamped_rows_at_0.3"]
    for beta, key in ((1.0, "beta1"), (2.0, "beta2"), (0.0, "beta0_equals_debiased")):
        loss = hard_negative_loss(*Z, beta=beta).item()
        assert loss == pytest.approx(HARD["values"][key], abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(
    n=st.integers(2, 7),
    seed=st.integers(0, 10**6),
    tau=st.sampled_from([0.2, 0.5, 2.0]),
    tau_plus=st.sampled_from([0.0, 0.05, 0.3]),
    beta=st.sampled_from([0.0, 0.5, 2.0]),
)
def test_equals_the_formula_in_loops(
    n: int, seed: int, tau: float, tau_plus: float, beta: float
) -> None:
    batch = views(n, 4, seed)
    expected, _ = naive_terms(*batch, tau, tau_plus, beta)
    terms = hard_negative_loss(*batch, tau, tau_plus, beta, reduction="none")
    assert terms.tolist() == pytest.approx(expected, rel=1e-8, abs=1e-12)
    for reduction, factor in (("mean", 1 / (2 * n)), ("sum", 1.0)):
        loss = hard_negative_loss(*batch, tau, tau_plus, beta, reduction=reduction)
        assert loss.item() == pytest.approx(sum(expected) * factor, rel=1e-8)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 7), seed=st.integers(0, 10**6), tau=st.sampled_from([0.05, 0.5]))
def test_equals_nt_xent_without_correction(n: int, seed: int, tau: float) -> None:
    batch = views(n, 4, seed)
    expected = NTXent(tau)(*batch).item()
    assert debiased_loss(*batch, tau, 0.0).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 7), seed=st.integers(0, 10**6))
def test_a_larger_beta_never_lowers_the_loss(n: int, seed: int) -> None:
    batch = views(n, 4, seed)
    losses = [hard_negative_loss(*batch, beta=beta).item() for beta in (0, 0.1, 0.5, 1, 4, 20)]
    assert all(a <= b + 1e-12 for a, b in pairwise(losses))


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 7), seed=st.integers(0, 10**6))
def test_invariant_to_order_scale_and_exchange_of_views(n: int, seed: int) -> None:
    batch = views(n, 4, seed)
    expected = hard_negative_loss(*batch).item()
    for changed in (permuted(n, seed, *batch), rescaled(seed, *batch), batch[::-1]):
        assert hard_negative_loss(*changed).item() == pytest.approx(expected, rel=1e-9)


def test_on_the_floor_negatives_have_no_gradient() -> None:
    """Use identical positives and far negatives, with which all rows are on the floor."""
    first = doubles([[1.0, 0.0], [-1.0, 0.0]])
    second = doubles([[1.0, 0.1], [-1.0, 0.1]])
    _, clamped = naive_terms(first, second, 0.5, 0.3, 1.0)
    assert clamped == 4
    angles = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    turned = torch.stack([angles.cos(), angles.sin()], dim=1) * doubles([[1.0], [-1.0]])
    hard_negative_loss(turned, turned.clone(), tau_plus=0.3).backward()
    assert angles.grad is not None and angles.grad.abs().max() < 1e-12  # positives cannot improve


def test_weights_may_be_constants() -> None:
    """Check that the value stays, and that the gradient is that of a sum with given weights."""
    batch = [view.requires_grad_() for view in views(4)]
    values, gradients = [], []
    for detach in (False, True):
        loss = hard_negative_loss(*batch, tau_plus=0.0, beta=2.0, detach_weights=detach)
        values.append(loss.item())
        gradients.append(torch.autograd.grad(loss, batch)[0])
    assert values[0] == pytest.approx(values[1])
    assert (gradients[0] - gradients[1]).abs().max() > 1e-3
    rows = torch.nn.functional.normalize(torch.cat(batch), dim=-1)
    scores = rows @ rows.T / 0.5
    index = torch.arange(8)
    others = scores[(index.unsqueeze(1) - index) % 4 != 0].view(8, 6)
    weights = (2 * others.detach()).softmax(dim=1)
    negatives = 6 * (weights * others.exp()).sum(dim=1)
    positive = torch.cat([scores.diagonal(4), scores.diagonal(-4)]).exp()
    expected = torch.autograd.grad(-(positive / (positive + negatives)).log().mean(), batch)[0]
    assert torch.allclose(gradients[1], expected)


@pytest.mark.parametrize("tau_plus", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_gradients(tau_plus: float, beta: float) -> None:
    batch = views(4, 3, seed=2)
    assert_gradients(lambda x, y: hard_negative_loss(x, y, 0.5, tau_plus, beta), *batch)


@pytest.mark.parametrize("tau", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("tau_plus", [0.0, 0.1, 0.9])
def test_values_and_gradients_of_hard_batches_are_finite(tau: float, tau_plus: float) -> None:
    assert_finite_where_it_is_hard(lambda x, y: hard_negative_loss(x, y, tau, tau_plus))


def test_a_single_pair_has_no_negatives() -> None:
    batch = [view.requires_grad_() for view in views(1)]
    assert_zero_with_a_graph(hard_negative_loss(*batch), *batch)
    assert hard_negative_loss(*batch, reduction="none").tolist() == [0, 0]


def test_full_precision_under_autocast() -> None:
    assert_full_precision(debiased_loss, *views(16))
    assert_full_precision(hard_negative_loss, *views(16))


def test_memory_is_quadratic() -> None:
    batch = views(512, 8, dtype=torch.float32)
    assert largest_saved(hard_negative_loss, *batch) <= 1024**2


def test_registered_names() -> None:
    hard = Objective.from_params(Params({"type": "hard_negative", "beta": 2.0, "tau_plus": 0.2}))
    assert isinstance(hard, HardNegative)
    expected = hard_negative_loss(*Z, beta=2.0, tau_plus=0.2).item()
    assert hard(*Z).item() == pytest.approx(expected)
    debiased = Objective.from_params(Params({"type": "debiased_contrastive", "reduction": "sum"}))
    assert type(debiased) is DebiasedContrastive
    assert debiased(*Z).item() == pytest.approx(8 * DEBIASED["values"]["loss"], abs=1e-8)
    constant = HardNegative(detach_weights=True)(*Z).item()
    assert constant == pytest.approx(HARD["values"]["beta1"])


def test_invalid_arguments_raise() -> None:
    for tau_plus in (-0.1, 1.0):
        with pytest.raises(ConfigurationError, match=r"tau_plus must be in \[0, 1\), got"):
            DebiasedContrastive(tau_plus=tau_plus)
    with pytest.raises(ConfigurationError, match="beta must be 0 or above, got -1"):
        HardNegative(beta=-1)
    with pytest.raises(ConfigurationError, match="temperature must be above 0, got 0"):
        HardNegative(temperature=0)
    with pytest.raises(ValueError, match=r"must both be \(N, d\)"):
        debiased_loss(Z[0], Z[1][:2])
