"""Distances against differences of rows, where rounding shows, and their gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.objectives.distances import (
    euclidean_distances,
    positive_pairs,
    same_label,
    squared_distances,
    unit,
)
from tests.objectives.oracles import distance, normal, squared_distance


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(0, 6),
    m=st.integers(0, 6),
    seed=st.integers(0, 10**6),
    offset=st.sampled_from([0.0, 1.0, 1000.0]),
)
def test_equal_loops(n: int, m: int, seed: int, offset: float) -> None:
    x, y = normal(n, 3, seed=seed) + offset, normal(m, 3, seed=seed + 1) + offset
    squared, plain = squared_distances(x, y), euclidean_distances(x, y)
    assert squared.shape == plain.shape == (n, m)
    for i in range(n):
        for j in range(m):
            assert squared[i, j].item() == pytest.approx(squared_distance(x[i], y[j]), abs=1e-6)
            assert plain[i, j].item() == pytest.approx(distance(x[i], y[j]), abs=1e-5)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_float32_keeps_small_distances(offset: float) -> None:
    """Far from the origin |x|^2 - 2xy + |y|^2 in float32 would be noise."""
    x = normal(5, 64).float() + offset
    y = x + 1e-2 * normal(5, 64, seed=1).float()
    expected = (x.unsqueeze(1) - y).double().pow(2).sum(dim=2)
    assert squared_distances(x, y).dtype == torch.float32
    assert torch.allclose(squared_distances(x, y).double(), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_equal_rows_are_at_zero_with_no_gradient(scale: float, dtype: torch.dtype) -> None:
    x = (scale * normal(1, 50).to(dtype)).repeat(4, 1).requires_grad_()
    distances = euclidean_distances(x, x)
    distances.sum().backward()
    assert not distances.any()
    assert x.grad is not None and not x.grad.any()


def test_gradcheck() -> None:
    inputs = [normal(4, 3, seed=seed).requires_grad_() for seed in (0, 1)]
    assert torch.autograd.gradcheck(squared_distances, inputs)
    assert torch.autograd.gradcheck(euclidean_distances, inputs)
    assert torch.autograd.gradcheck(lambda x: euclidean_distances(x, x).pow(2), inputs[:1])


def test_unit_rows() -> None:
    rows = unit(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-20, 0.0]]))
    assert rows[0].tolist() == pytest.approx([0.6, 0.8])
    assert not rows[1].any() and rows[2, 0].item() == pytest.approx(1e-8)
    assert unit(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.float32


def test_labels() -> None:
    labels = torch.tensor([3, 1, 3])
    assert same_label(labels).int().tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert positive_pairs(labels).int().tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
