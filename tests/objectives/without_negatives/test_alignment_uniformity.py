"""Tests of alignment and uniformity against golden numbers and loops over pairs."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis.strategies import integers, sampled_from
from torch.nn.functional import normalize

from declutr.objectives import alignment, uniformity
from declutr.objectives.without_negatives.alignment_uniformity import (
    AlignUniform,
    align_uniform_loss,
)
from tests.objectives import laws
from tests.objectives.oracles import Golden, drawn, mean, normal, squared_distance, views

GOLDEN = Golden("objectives", "align_uniform")
X, Y = GOLDEN.inputs("x", "y")


def test_golden_numbers() -> None:
    values = GOLDEN.values
    found = {
        "align": alignment(X, Y),
        "align_alpha1": alignment(X, Y, alpha=1),
        "uniform_x": uniformity(X),
        "uniform_y": uniformity(Y),
        "uniform_train_average": (uniformity(X) + uniformity(Y)) / 2,
    }
    GOLDEN.check(found)
    assert abs(alignment(X, Y).item() - values["align_unnormalised_WRONG"]) > 1e-4
    assert abs(uniformity(X).item() - values["uniform_if_self_pairs_included_WRONG"]) > 1e-4
    expected = values["align"] + values["uniform_train_average"]
    assert align_uniform_loss(X, Y).item() == pytest.approx(expected, abs=1e-9)
    assert align_uniform_loss(Y, X).item() == pytest.approx(expected, abs=1e-9)
    expected = 3 * values["align_alpha1"] + 0.5 * values["uniform_train_average"]
    for weighted in (
        align_uniform_loss(X, Y, 1, align_weight=3, uniform_weight=0.5),
        AlignUniform(1, align_weight=3, uniform_weight=0.5)(X, Y),
    ):
        assert weighted.item() == pytest.approx(expected, abs=1e-9)
    assert AlignUniform(t=3)(X, Y).item() == pytest.approx(align_uniform_loss(X, Y, t=3).item())


@drawn(
    40,
    n=integers(2, 9),
    width=integers(1, 4),
    t=sampled_from([0.5, 2.0, 5.0]),
    block=integers(1, 12),
)
def test_equals_loops_with_blocks_of_any_size(
    n: int, width: int, seed: int, t: float, block: int
) -> None:
    x, y = normal(n, width, seed=seed), normal(n, width, seed=seed + 1)
    unit_x, unit_y = normalize(x), normalize(y)
    apart = [math.exp(-t * squared_distance(a, b)) for a, b in combinations(unit_x, 2)]
    assert uniformity(x, t, block).item() == pytest.approx(math.log(mean(apart)), abs=1e-9)
    assert -4 * t - 1e-9 <= uniformity(x, t, block).item() <= 1e-9
    together = [squared_distance(a, b) for a, b in zip(unit_x, unit_y, strict=True)]
    assert alignment(x, y).item() == pytest.approx(mean(together), abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_smallest_and_largest_values(dtype: torch.dtype) -> None:
    x = normal(5, 4, dtype=dtype)
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


def test_gradients_and_precision() -> None:
    laws.assert_gradients(alignment, normal(4, 3, seed=1), normal(4, 3, seed=2))
    laws.assert_gradients(lambda rows: uniformity(rows, 2, 3), normal(4, 3, seed=1))
    laws.assert_full_precision(uniformity, views(16)[0])
