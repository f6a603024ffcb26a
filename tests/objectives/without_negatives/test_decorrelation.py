"""Tests of Barlow Twins and SCD against golden numbers and loops in Python."""

import math
from statistics import fmean, pvariance

import pytest
import torch
from hypothesis import assume
from hypothesis.strategies import integers, sampled_from
from torch import Tensor

from declutr.objectives.without_negatives.decorrelation import (
    SCD,
    BarlowTwins,
    barlow_twins_loss,
    correlation_terms,
    cross_correlation,
    scd_loss,
    self_contrast,
)
from tests.objectives import laws
from tests.objectives.oracles import (
    Golden,
    assert_reductions,
    cosine,
    doubles,
    drawn,
    normal,
    views,
)

BARLOW, SCD_GOLDEN = (Golden("decorrelation", key) for key in ("barlow_twins", "scd"))
Z, H = BARLOW.inputs("zA", "zB"), SCD_GOLDEN.inputs("hA", "hB")
P = SCD_GOLDEN.inputs("pA", "pB")


def naive_correlation(first: Tensor, second: Tensor, eps: float) -> list[list[float]]:
    def standard(column: list[float]) -> list[float]:
        centre, deviation = fmean(column), math.sqrt(pvariance(column) + eps)
        return [(value - centre) / deviation for value in column]

    columns = [[standard(column) for column in view.T.tolist()] for view in (first, second)]
    return [
        [fmean(a * b for a, b in zip(x, y, strict=True)) for y in columns[1]] for x in columns[0]
    ]


def naive_loss(first: Tensor, second: Tensor, weight: float, eps: float = 1e-5) -> float:
    return sum(
        (1 - value) ** 2 if j == k else weight * value**2
        for j, row in enumerate(naive_correlation(first, second, eps))
        for k, value in enumerate(row)
    )


# ------------------------------------------------------------------------------- golden numbers


def test_golden_numbers_of_barlow_twins() -> None:
    values = BARLOW.values
    assert torch.allclose(cross_correlation(*Z), doubles(values["C"]), rtol=0, atol=1e-9)
    diagonal, beside = correlation_terms(*Z)
    found = {
        "on_diag": (1 - diagonal).square().sum(),
        "off_diag": beside,
        "loss": barlow_twins_loss(*Z),
        "loss_eps0": barlow_twins_loss(*Z, eps=0.0),
    }
    BARLOW.check(found)
    assert BarlowTwins()(*Z).item() == found["loss"].item()
    assert abs(found["loss"].item() - values["loss_uncentred_formula_as_printed"]) > 1e-3


def test_golden_numbers_of_scd() -> None:
    values, correlation = SCD_GOLDEN.values, cross_correlation(*P)
    assert torch.allclose(correlation, doubles(values["C"]), rtol=0, atol=1e-9)
    decorrelation = scd_loss(*H, *P, contrast_weight=0.0, decorrelation_weight=1.0)
    readme = SCD(decorrelation_weight=0.005225, redundancy_weight=0.012)
    found = {
        "L_S_eq2": self_contrast(*H),
        "L_S_over_tau": scd_loss(*H, *P, decorrelation_weight=0.0),
        "L_C": decorrelation,
        "joint_recommended": scd_loss(*H, *P),
        "joint_eq1_no_tau": scd_loss(*H, *P, temperature=1.0),
        "joint_readme_hparams": readme(*H, *P),
    }
    SCD_GOLDEN.check(found)
    for name in ("L_C_eq4_literal_sign_WRONG", "L_C_eq3_literal_C_correct_sign_WRONG"):
        assert abs(decorrelation.item() - values[name]) > 1e-4
    assert (correlation - doubles(values["C_eq3_literal_WRONG"])).abs().max() > 1e-4


# ---------------------------------------------------------------------- the formula, and its laws


@drawn(40, n=integers(2, 7), width=integers(1, 16), weight=sampled_from([0.0, 0.0051, 1.0]))
def test_equals_the_formula_in_loops(n: int, width: int, seed: int, weight: float) -> None:
    """Include batches below half the width, for which the matrix is not built."""
    batch = views(n, width, seed)
    expected = naive_loss(*batch, weight)
    assert barlow_twins_loss(*batch, weight).item() == pytest.approx(expected, rel=1e-9)
    cosines = [cosine(*pair) for pair in zip(*batch, strict=True)]
    assert_reductions(lambda reduction: self_contrast(*batch, reduction), cosines)
    weights = {"contrast_weight": 0.5, "decorrelation_weight": 0.1, "redundancy_weight": weight}
    joint = scd_loss(*batch, *batch, **weights, temperature=0.2).item()
    assert joint == pytest.approx(0.5 * fmean(cosines) / 0.2 + 0.1 * expected)


@pytest.mark.parametrize("width", [7, 8, 9, 64])
def test_both_computations_agree_in_float32(width: int) -> None:
    batch = views(4, width, dtype=torch.float32)
    diagonal, beside = correlation_terms(*batch)
    matrix = cross_correlation(*[view.double() for view in batch])
    assert torch.allclose(diagonal.double(), matrix.diagonal(), atol=1e-5)
    expected = matrix.square().sum() - matrix.diagonal().square().sum()
    assert beside.item() == pytest.approx(expected.item(), rel=1e-5)


@drawn(20, n=integers(2, 8), width=integers(1, 20))
def test_correlations_are_bounded_and_invariant_to_shift_and_scale(
    n: int, width: int, seed: int
) -> None:
    first, second = views(n, width, seed)
    # Features that vary as little as eps have correlations near 0.
    assume(min(view.var(dim=0).min().item() for view in (first, second)) > 1e-4)
    correlation = cross_correlation(first, second, eps=1e-12)
    assert correlation.abs().max() <= 1 + 1e-9
    moved = first * torch.linspace(0.5, 9, width, dtype=torch.float64) + normal(width, seed=seed)
    assert torch.allclose(cross_correlation(moved, second, eps=1e-12), correlation, atol=1e-6)


def test_features_that_are_decorrelated_or_equal_have_no_loss() -> None:
    z = doubles([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    assert torch.allclose(cross_correlation(z, z, eps=0.0), torch.eye(2, dtype=torch.float64))
    assert barlow_twins_loss(z, z, 1.0, eps=0.0).item() == 0
    assert barlow_twins_loss(*views(6)[:1] * 2, 0.0).item() < 1e-6


def test_a_gradient_step_moves_the_diagonal_towards_one() -> None:
    """Take a gradient step; with the misprinted sign it would move the diagonal away."""
    first, second = views(8, 3)
    second = second + 2 * normal(8, 3, seed=9)
    first.requires_grad_()
    before = cross_correlation(first, second).diagonal()
    scd_loss(first, second, first, second, contrast_weight=0.0, redundancy_weight=0.0).backward()
    assert first.grad is not None
    after = cross_correlation(first - 10 * first.grad, second).diagonal()
    assert before.max() < 1 and (after > before).all()


@pytest.mark.parametrize("n, width", [(2, 3), (4, 3), (3, 8)])
def test_gradients(n: int, width: int) -> None:
    """Check gradients through the statistics of the batch, with both computations."""
    batch = views(n, width)
    laws.assert_gradients(lambda x, y: barlow_twins_loss(x, y, 0.5), *batch)
    laws.assert_gradients(lambda x, y: scd_loss(x, y, x, y), *batch)


@pytest.mark.parametrize("width", [4, 12])
def test_values_and_gradients_of_hard_batches_are_finite(width: int) -> None:
    widen = normal(4, width, seed=3)
    laws.assert_finite(lambda x, y: scd_loss(x, y, x @ widen.to(x.dtype), y @ widen.to(x.dtype)))


@pytest.mark.parametrize("width", [4, 64])
def test_full_precision_under_autocast(width: int) -> None:
    batch = views(16, width)
    laws.assert_full_precision(lambda x, y: scd_loss(x, y, x, y), *batch)
    laws.assert_full_precision(lambda x, y: cross_correlation(x, y).sum(), *batch)


def test_the_matrix_of_wide_projections_is_never_built() -> None:
    batch = views(32, 4096, dtype=torch.float32)
    assert laws.largest_saved(barlow_twins_loss, *batch) <= 32 * 4096


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 0.1), (1.0, 0.1)])
def test_ablations_leave_a_gradient_everywhere(weights: tuple[float, float]) -> None:
    """Check every input, as DistributedDataParallel fails on parameters without a gradient."""
    objective = SCD(contrast_weight=weights[0], decorrelation_weight=weights[1])
    inputs = [view.requires_grad_() for view in [*views(6), *views(6, 3, seed=5)]]
    loss = objective(*inputs)
    loss.backward()
    for view, weight in zip(inputs, (weights[0],) * 2 + (weights[1],) * 2, strict=True):
        assert view.grad is not None and bool(view.grad.any()) is bool(weight)
    assert list(objective.last_terms) == ["self_contrast", "decorrelation"]
    terms = objective.last_terms.values()
    assert not any(term.requires_grad for term in terms)
    assert sum(terms).item() == pytest.approx(loss.item())
