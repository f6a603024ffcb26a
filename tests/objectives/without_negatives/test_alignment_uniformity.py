"""Tests of alignment and uniformity against golden numbers and loops over pairs."""

import json
import math
from itertools import combinations
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import Objective, alignment, uniformity
from declutr.objectives.without_negatives.alignment_uniformity import (
    AlignUniform,
    align_uniform_loss,
)
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    largest_saved,
    views,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"
GOLDEN = json.loads((FIXTURES / "golden_objectives.json").read_text())["align_uniform"]
X, Y = (torch.tensor(GOLDEN["inputs"][key], dtype=torch.float64) for key in ("x", "y"))


def normal(n: int, width: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=generator, dtype=torch.float64)


def unit(row: Tensor) -> list[float]:
    length = math.sqrt(sum(value * value for value in row.tolist()))
    return [value / length for value in row.tolist()]


def squared_distance(x: Tensor, y: Tensor) -> float:
    return sum((a - b) ** 2 for a, b in zip(unit(x), unit(y), strict=True))


def test_golden_numbers() -> None:
    values = GOLDEN["values"]
    assert alignment(X, Y).item() == pytest.approx(values["align"], abs=1e-9)
    assert alignment(X, Y, alpha=1).item() == pytest.approx(values["align_alpha1"], abs=1e-9)
    assert uniformity(X).item() == pytest.approx(values["uniform_x"], abs=1e-9)
    assert uniformity(Y).item() == pytest.approx(values["uniform_y"], abs=1e-9)
    average = (uniformity(X) + uniformity(Y)) / 2
    assert average.item() == pytest.approx(values["uniform_train_average"], abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 9),
    width=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    t=st.sampled_from([0.5, 2.0, 5.0]),
    block=st.integers(1, 12),
)
def test_equals_loops_with_blocks_of_any_size(
    n: int, width: int, seed: int, t: float, block: int
) -> None:
    x, y = normal(n, width, seed), normal(n, width, seed + 1)
    apart = [math.exp(-t * squared_distance(a, b)) for a, b in combinations(x, 2)]
    expected = math.log(sum(apart) / len(apart))
    assert uniformity(x, t, block).item() == pytest.approx(expected, abs=1e-9)
    assert -4 * t - 1e-9 <= uniformity(x, t, block).item() <= 1e-9
    together = [squared_distance(a, b) for a, b in zip(x, y, strict=True)]
    assert alignment(x, y).item() == pytest.approx(sum(together) / n, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 8), seed=st.integers(0, 10**6))
def test_invariant_to_order_and_scale(n: int, seed: int) -> None:
    x, y = normal(n, 3, seed), normal(n, 3, seed + 1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    scale = torch.linspace(0.1, 9, n, dtype=torch.float64).unsqueeze(1)
    for changed_x, changed_y in ((x[order], y[order]), (x * scale, y * scale.flip(0))):
        assert alignment(changed_x, changed_y).item() == pytest.approx(alignment(x, y).item())
        assert uniformity(changed_x).item() == pytest.approx(uniformity(x).item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_smallest_and_largest_values(dtype: torch.dtype) -> None:
    x = normal(5, 4, 0).to(dtype)
    same = x[:1].expand(5, 4)
    assert alignment(x, x).item() == 0
    assert alignment(x, -x).item() == pytest.approx(4, rel=1e-5)
    assert uniformity(same).item() == pytest.approx(0, abs=1e-5)
    assert uniformity(same).item() <= 0
    opposite = torch.stack([x[0], -x[0]])
    assert uniformity(opposite).item() == pytest.approx(-8, rel=1e-5)


@pytest.mark.parametrize("rows", [0, 1])
def test_uniformity_of_fewer_than_two_rows_raises(rows: int) -> None:
    with pytest.raises(ValueError, match=f"at least two embeddings, got {rows}"):
        uniformity(torch.ones(rows, 3))


def test_gradcheck() -> None:
    x, y = normal(4, 3, 1).requires_grad_(), normal(4, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(alignment, (x, y))
    assert torch.autograd.gradcheck(lambda rows: uniformity(rows, 2, 3), (x,))


def test_gradient_is_finite_at_perfect_alignment() -> None:
    x = normal(3, 3, 0).requires_grad_()
    (alignment(x, x.detach().clone()) + uniformity(x)).backward()
    assert x.grad.isfinite().all()


# ------------------------------------------------------------------------------------- as a loss


def test_the_loss_is_alignment_plus_the_mean_of_both_uniformities() -> None:
    values = GOLDEN["values"]
    expected = values["align"] + values["uniform_train_average"]
    assert align_uniform_loss(X, Y).item() == pytest.approx(expected, abs=1e-9)
    assert align_uniform_loss(Y, X).item() == pytest.approx(expected, abs=1e-9)
    weighted = align_uniform_loss(X, Y, 1, align_weight=3, uniform_weight=0.5).item()
    expected = 3 * values["align_alpha1"] + 0.5 * values["uniform_train_average"]
    assert weighted == pytest.approx(expected, abs=1e-9)


def test_values_differ_from_common_mistakes() -> None:
    values = GOLDEN["values"]
    assert abs(alignment(X, Y).item() - values["align_unnormalised_WRONG"]) > 1e-4
    assert abs(uniformity(X).item() - values["uniform_if_self_pairs_included_WRONG"]) > 1e-4


def test_gradients_hard_batches_and_precision_of_the_loss() -> None:
    assert_gradients(align_uniform_loss, *views(4))
    assert_finite_where_it_is_hard(align_uniform_loss)
    assert_finite_where_it_is_hard(lambda x, y: align_uniform_loss(x, y, alpha=1))
    assert_full_precision(align_uniform_loss, *views(16))
    assert_full_precision(uniformity, views(16)[0])
    assert largest_saved(align_uniform_loss, *views(512, dtype=torch.float32)) <= 512**2


def test_registered_name_and_refusals() -> None:
    built = Objective.from_params(Params({"type": "align_uniform", "t": 3, "align_weight": 0.5}))
    assert isinstance(built, AlignUniform) and built.min_pairs == 2
    expected = align_uniform_loss(X, Y, t=3, align_weight=0.5).item()
    assert built(X, Y).item() == pytest.approx(expected)
    with pytest.raises(ValueError, match="at least two embeddings, got 1"):
        built(X[:1], Y[:1])
    with pytest.raises(ValueError, match=r"must both be \(N, d\)"):
        built(X, Y[:3])
    with pytest.raises(ConfigurationError, match="alpha must be above 0, got 0"):
        AlignUniform(alpha=0)
    with pytest.raises(ConfigurationError, match="uniform_weight must be 0 or above, got -1"):
        AlignUniform(uniform_weight=-1)
