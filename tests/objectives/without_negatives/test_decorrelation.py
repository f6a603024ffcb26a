"""Tests of Barlow Twins and SCD against golden numbers and loops in Python."""

import math
from statistics import fmean, pvariance

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import Objective
from declutr.objectives.without_negatives.decorrelation import (
    SCD,
    BarlowTwins,
    barlow_twins_loss,
    correlation_terms,
    cross_correlation,
    scd_loss,
    self_contrast,
)
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    doubles,
    golden,
    largest_saved,
    normal,
    permuted,
    rescaled,
    views,
)

BARLOW, SCD_GOLDEN = (golden("decorrelation")[key] for key in ("barlow_twins", "scd"))
Z = [doubles(BARLOW["inputs"][key]) for key in ("zA", "zB")]
H = [doubles(SCD_GOLDEN["inputs"][key]) for key in ("hA", "hB")]
P = [doubles(SCD_GOLDEN["inputs"][key]) for key in ("pA", "pB")]


def naive_correlation(first: Tensor, second: Tensor, eps: float) -> list[list[float]]:
    def standard(column: list[float]) -> list[float]:
        mean, deviation = fmean(column), math.sqrt(pvariance(column) + eps)
        return [(value - mean) / deviation for value in column]

    columns = [[standard(column) for column in view.T.tolist()] for view in (first, second)]
    return [
        [fmean(a * b for a, b in zip(x, y, strict=True)) for y in columns[1]] for x in columns[0]
    ]


def naive_loss(first: Tensor, second: Tensor, weight: float, eps: float = 1e-5) -> float:
    matrix = naive_correlation(first, second, eps)
    terms = [
        (1 - value) ** 2 if j == k else weight * value**2
        for j, row in enumerate(matrix)
        for k, value in enumerate(row)
    ]
    return sum(terms)


# ------------------------------------------------------------------------------- golden numbers


def test_golden_numbers_of_barlow_twins() -> None:
    values = BARLOW["values"]
    assert torch.allclose(cross_correlation(*Z), doubles(values["C"]), rtol=0, atol=1e-9)
    diagonal, beside = correlation_terms(*Z)
    assert (1 - diagonal).square().sum().item() == pytest.approx(values["on_diag"], abs=1e-9)
    assert beside.item() == pytest.approx(values["off_diag"], abs=1e-9)
    loss = barlow_twins_loss(*Z).item()
    assert loss == pytest.approx(values["loss"], abs=1e-9)
    assert BarlowTwins()(*Z).item() == loss
    without = barlow_twins_loss(*Z, eps=0.0).item()
    assert without == pytest.approx(values["loss_eps0"], abs=1e-9)
    assert abs(loss - values["loss_uncentred_formula_as_printed"]) > 1e-3


def test_golden_numbers_of_scd() -> None:
    values = SCD_GOLDEN["values"]
    assert torch.allclose(cross_correlation(*P), doubles(values["C"]), rtol=0, atol=1e-9)
    assert self_contrast(*H).item() == pytest.approx(values["L_S_eq2"], abs=1e-9)
    only = scd_loss(*H, *P, decorrelation_weight=0.0).item()
    assert only == pytest.approx(values["L_S_over_tau"], abs=1e-9)
    decorrelation = scd_loss(*H, *P, contrast_weight=0.0, decorrelation_weight=1.0).item()
    assert decorrelation == pytest.approx(values["L_C"], abs=1e-9)
    assert scd_loss(*H, *P).item() == pytest.approx(values["joint_recommended"], abs=1e-9)
    printed = scd_loss(*H, *P, temperature=1.0).item()
    assert printed == pytest.approx(values["joint_eq1_no_tau"], abs=1e-9)
    readme = SCD(decorrelation_weight=0.005225, redundancy_weight=0.012)(*H, *P).item()
    assert readme == pytest.approx(values["joint_readme_hparams"], abs=1e-9)


def test_values_differ_from_the_misprinted_equations() -> None:
    values = SCD_GOLDEN["values"]
    decorrelation = scd_loss(*H, *P, contrast_weight=0.0, decorrelation_weight=1.0).item()
    assert abs(decorrelation - values["L_C_eq4_literal_sign_WRONG"]) > 1e-4
    assert abs(decorrelation - values["L_C_eq3_literal_C_correct_sign_WRONG"]) > 1e-4
    assert (cross_correlation(*P) - doubles(values["C_eq3_literal_WRONG"])).abs().max() > 1e-4


# ---------------------------------------------------------------------- the formula, and its laws


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 7),
    width=st.integers(1, 16),
    seed=st.integers(0, 10**6),
    weight=st.sampled_from([0.0, 0.0051, 1.0]),
)
def test_equals_the_formula_in_loops(n: int, width: int, seed: int, weight: float) -> None:
    """Include batches below half the width, for which the matrix is not built."""
    batch = views(n, width, seed)
    expected = naive_loss(*batch, weight)
    assert barlow_twins_loss(*batch, weight).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("width", [7, 8, 9, 64])
def test_both_computations_agree_in_float32(width: int) -> None:
    batch = views(4, width, dtype=torch.float32)
    diagonal, beside = correlation_terms(*batch)
    matrix = cross_correlation(*[view.double() for view in batch])
    assert torch.allclose(diagonal.double(), matrix.diagonal(), atol=1e-5)
    expected = matrix.square().sum() - matrix.diagonal().square().sum()
    assert beside.item() == pytest.approx(expected.item(), rel=1e-5)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 8), width=st.integers(1, 20), seed=st.integers(0, 10**6))
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


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 8), seed=st.integers(0, 10**6))
def test_invariant_to_order(n: int, seed: int) -> None:
    batch = [*views(n, 3, seed), *views(n, 5, seed + 7)]
    assert scd_loss(*permuted(n, seed, *batch)).item() == pytest.approx(scd_loss(*batch).item())


def test_self_contrast_does_not_depend_on_the_length_of_rows() -> None:
    batch = views(6)
    for reduction, factor in (("mean", 1), ("sum", 6)):
        expected = self_contrast(*batch).item() * factor
        assert self_contrast(*rescaled(1, *batch), reduction).item() == pytest.approx(expected)
    assert self_contrast(*batch, reduction="none").shape == (6,)


def test_perfectly_decorrelated_features_have_no_loss() -> None:
    z = doubles([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    assert torch.allclose(cross_correlation(z, z, eps=0.0), torch.eye(2, dtype=torch.float64))
    assert barlow_twins_loss(z, z, 1.0, eps=0.0).item() == 0


def test_equal_views_have_a_diagonal_of_ones() -> None:
    first, _ = views(6)
    assert self_contrast(first, first).item() == pytest.approx(1)
    assert (cross_correlation(first, first).diagonal() - 1).abs().max() < 1e-3
    assert barlow_twins_loss(first, first, 0.0).item() < 1e-6


def test_the_printed_self_contrast_is_the_mean_cosine() -> None:
    batch = views(5)
    cosine = torch.nn.functional.cosine_similarity(*batch).mean().item()
    loss = SCD(temperature=1.0, decorrelation_weight=0.0)(*batch, *batch)
    assert loss.item() == pytest.approx(cosine)


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
    assert_gradients(lambda x, y: barlow_twins_loss(x, y, 0.5), *batch)
    assert_gradients(lambda x, y: scd_loss(x, y, x, y), *batch)


@pytest.mark.parametrize("width", [4, 12])
def test_values_and_gradients_of_hard_batches_are_finite(width: int) -> None:
    widen = normal(4, width, seed=3)
    assert_finite_where_it_is_hard(
        lambda x, y: scd_loss(x, y, x @ widen.to(x.dtype), y @ widen.to(x.dtype))
    )


def test_full_precision_under_autocast() -> None:
    for width in (4, 64):
        batch = views(16, width)
        assert_full_precision(barlow_twins_loss, *batch)
        assert_full_precision(lambda x, y: scd_loss(x, y, x, y), *batch)
        assert_full_precision(lambda x, y: cross_correlation(x, y).sum(), *batch)


def test_the_matrix_of_wide_projections_is_never_built() -> None:
    batch = views(32, 4096, dtype=torch.float32)
    assert largest_saved(barlow_twins_loss, *batch) <= 32 * 4096
    narrow = views(512, 64, dtype=torch.float32)
    assert largest_saved(barlow_twins_loss, *narrow) <= 512 * 64


# ------------------------------------------------------------------------------------- arguments


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


def test_registered_names() -> None:
    scd = Objective.from_params(Params({"type": "scd", "temperature": 1.0, "reduction": "sum"}))
    assert isinstance(scd, SCD) and "projected_positives" in scd.inputs
    assert (scd.temperature, scd.reduction, scd.min_pairs) == (1.0, "sum", 2)
    barlow = Objective.from_params(Params({"type": "barlow_twins", "redundancy_weight": 0.1}))
    assert isinstance(barlow, BarlowTwins) and barlow.redundancy_weight == 0.1


def test_invalid_arguments_raise() -> None:
    with pytest.raises(ValueError, match="at least two rows, got 1"):
        barlow_twins_loss(*views(1))
    with pytest.raises(ValueError, match=r"must both be \(N, d\).*\(3, 4\) and \(2, 4\)"):
        cross_correlation(normal(3, 4), normal(2, 4))
    with pytest.raises(ConfigurationError, match=r"redundancy_weight must be 0 or above, got -1"):
        BarlowTwins(redundancy_weight=-1)
    with pytest.raises(ConfigurationError, match=r"eps must be above 0, got 0"):
        BarlowTwins(eps=0)
    with pytest.raises(ConfigurationError, match="are both 0, so there is nothing to train by"):
        SCD(contrast_weight=0, decorrelation_weight=0)
    with pytest.raises(ConfigurationError, match="temperature must be above 0, got 0"):
        SCD(temperature=0)
    with pytest.raises(ConfigurationError, match="Unknown reduction 'none'"):
        SCD(reduction="none")
