"""Tests of distances against loops, full precision, reductions, checks, and counts on the host."""

import copy
from collections.abc import Callable

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from hypothesis.strategies import integers, sampled_from

from declutr.objectives.distances import euclidean_distances, squared_distances
from declutr.objectives.numerics import (
    HostCount,
    above_zero,
    at_least_zero,
    full_precision,
    nothing,
    one_of,
    positive_pairs,
    reduced,
    reduced_where,
    require,
    same_label,
    scalar_reduction,
    unit,
)
from tests.objectives import laws
from tests.objectives.oracles import distance, drawn, normal, squared_distance
from tests.objectives.waits import NeverWaits

TERMS = torch.tensor([1.0, 2.0, 6.0])


@drawn(30, n=integers(0, 6), m=integers(0, 6), offset=sampled_from([0.0, 1.0, 1000.0]))
def test_distances_equal_loops(n: int, m: int, seed: int, offset: float) -> None:
    x, y = normal(n, 3, seed=seed) + offset, normal(m, 3, seed=seed + 1) + offset
    squared, plain = squared_distances(x, y), euclidean_distances(x, y)
    assert squared.shape == plain.shape == (n, m)
    for i in range(n):
        for j in range(m):
            assert squared[i, j].item() == pytest.approx(squared_distance(x[i], y[j]), abs=1e-6)
            assert plain[i, j].item() == pytest.approx(distance(x[i], y[j]), abs=1e-5)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_float32_keeps_small_distances(offset: float) -> None:
    """Use rows far from the origin, where |x|^2 - 2xy + |y|^2 in float32 would be noise."""
    x = normal(5, 64).float() + offset
    y = x + 1e-2 * normal(5, 64, seed=1).float()
    expected = (x.unsqueeze(1) - y).double().pow(2).sum(dim=2)
    assert squared_distances(x, y).dtype == torch.float32
    assert torch.allclose(squared_distances(x, y).double(), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_equal_rows_have_distance_zero_and_no_gradient(scale: float, dtype: torch.dtype) -> None:
    x = (scale * normal(1, 50).to(dtype)).repeat(4, 1).requires_grad_()
    distances = euclidean_distances(x, x)
    distances.sum().backward()
    assert not distances.any()
    assert x.grad is not None and not x.grad.any()


def test_gradients_of_distances() -> None:
    inputs = normal(4, 3), normal(4, 3, seed=1)
    laws.assert_gradients(squared_distances, *inputs)
    laws.assert_gradients(euclidean_distances, *inputs)
    laws.assert_gradients(lambda x: euclidean_distances(x, x).pow(2), inputs[0])


def test_unit_scales_rows_to_length_one() -> None:
    rows = unit(torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e-20, 0.0]]))
    assert rows[0].tolist() == pytest.approx([0.6, 0.8])
    assert not rows[1].any() and rows[2, 0].item() == pytest.approx(1e-8)
    assert unit(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.float32


def test_rows_without_a_direction_get_no_gradient_and_the_others_get_theirs() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 1.0], [1e-20, 0.0]]).double()
    others = torch.tensor([[1.0, 2.0], [2.0, 1.0], [1.0, 1.0]]).double()

    def gradient(scaled: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        x = rows.clone().requires_grad_()
        (scaled(x) @ others.T).logsumexp(dim=1).sum().backward()
        assert x.grad is not None
        return x.grad

    ours, theirs = gradient(unit), gradient(torch.nn.functional.normalize)
    assert not ours[[1, 3]].any() and (theirs[[1, 3]].abs().amax(dim=1) > 1e11).all()
    assert torch.allclose(ours[[0, 2]], theirs[[0, 2]], rtol=1e-12, atol=0)


def test_gradients_of_unit_are_exact_in_both_orders() -> None:
    x = normal(2, 3, 4, seed=0).double().requires_grad_()
    assert torch.autograd.gradcheck(unit, x) and torch.autograd.gradgradcheck(unit, x)
    rows = torch.func.vmap(unit)(x)
    assert torch.equal(rows, unit(x)) and unit(torch.empty(0, 3, requires_grad=True)).sum() == 0


def test_masks_of_equal_labels() -> None:
    labels = torch.tensor([3, 1, 3])
    assert same_label(labels).int().tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    assert positive_pairs(labels).int().tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


@full_precision
def product(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """The matrix of dot products."""
    return scale * x @ y.T


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize(
    "given", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str
)
def test_full_precision_computes_in_float32_at_least(given: torch.dtype, autocast: bool) -> None:
    seen = torch.float64 if given == torch.float64 else torch.float32
    x, y = torch.randn(3, 4).to(given).requires_grad_(), torch.randn(2, 4).to(given)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        result = product(x, y=y, scale=2.0)
        assert torch.is_autocast_enabled("cpu") == autocast  # as it was
    assert result.dtype == seen
    assert torch.equal(result, 2 * x.to(seen) @ y.to(seen).T)
    result.sum().backward()
    assert x.grad is not None and x.grad.dtype == given


def test_full_precision_leaves_other_arguments_unchanged() -> None:
    @full_precision
    def kept(labels: torch.Tensor, names: list[str]) -> tuple[torch.Tensor, list[str]]:
        return labels, names

    labels, names = torch.arange(3), ["a"]
    assert kept(labels, names)[0] is labels and kept(labels, names)[1] is names
    assert product.__name__ == "product" and product.__doc__ == "The matrix of dot products."


def test_reductions() -> None:
    assert reduced(TERMS, "mean").item() == 3
    assert reduced(TERMS, "sum").item() == 9
    assert reduced(TERMS, "none") is TERMS
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(4, requires_grad=True)
    for zero in (*(reduced(TERMS[:0], way, x, y) for way in ("mean", "sum")), nothing(x, y)):
        laws.assert_zero_with_a_graph(zero, x, y)
    message = "Unknown reduction 'max': expected one of mean, sum, none"
    with pytest.raises(ValueError, match=message):
        reduced(TERMS, "max")


@pytest.mark.parametrize("kept", [[True, True, True], [False, True, True], [False] * 3])
def test_terms_that_are_not_kept_have_no_influence(kept: list[bool]) -> None:
    """Compare with the kept terms alone; the others must have no gradient."""
    mask = torch.tensor(kept)
    for reduction in ("mean", "sum"):
        terms, others = (TERMS.clone().requires_grad_() for _ in range(2))
        loss = reduced_where(mask, terms, reduction)
        expected = reduced(others[mask], reduction, others)
        loss.backward(), expected.backward()
        assert loss.item() == expected.item() and torch.equal(terms.grad, others.grad)
    assert torch.equal(reduced_where(mask, TERMS, "none"), TERMS[mask])
    with pytest.raises(ValueError, match="Unknown reduction 'max'"):
        reduced_where(mask, TERMS, "max")


class Counting(torch.nn.Module):
    done: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.count = HostCount(self, "done")


def test_a_host_count_follows_the_buffer_and_reads_it_once() -> None:
    module = Counting()
    module.count.advance()
    assert module.count.value == 1
    with NeverWaits():
        module.count.advance()
        assert module.count.value == 2
    assert module.done == 2


def test_a_host_count_follows_a_loaded_state_of_a_whole_model() -> None:
    model = torch.nn.ModuleDict({"part": Counting()})
    assert model["part"].count.value == 0
    model.load_state_dict({"part.done": torch.tensor(7)})
    assert model["part"].count.value == 7


def test_a_copy_of_a_host_count_counts_independently() -> None:
    module = Counting()
    assert module.count.value == 0
    twin = copy.deepcopy(module)
    twin.count.advance()
    assert (module.count.value, twin.count.value, int(module.done)) == (0, 1, 0)
    twin.load_state_dict({"done": torch.tensor(5)})
    assert (module.count.value, twin.count.value) == (0, 5)


# ------------------------------------------------------------------------------------------ checks


def test_settings_out_of_range_raise() -> None:
    assert above_zero("tau", 0.1) == 0.1 and at_least_zero("margin", 0) == 0
    assert one_of("kind", "a", ("a", "b")) == "a" and scalar_reduction("sum") == "sum"
    for value in (0, -1, float("nan")):
        with pytest.raises(ConfigurationError, match="tau must be above 0, got"):
            above_zero("tau", value)
    for value in (-0.5, float("nan")):
        with pytest.raises(ConfigurationError, match="margin must be 0 or above, got"):
            at_least_zero("margin", value)
    with pytest.raises(ConfigurationError, match="Unknown kind 'c': expected one of a, b"):
        one_of("kind", "c", ("a", "b"))
    with pytest.raises(ConfigurationError, match="Unknown reduction 'none': expected one of mean"):
        scalar_reduction("none")


def test_a_condition_that_does_not_hold_raises_with_values_and_advice() -> None:
    with NeverWaits():  # One that holds does not read the values.
        require(torch.tensor(True), "Expected this", torch.arange(3), "Do that.")
    with pytest.raises(ValueError, match=r"^Expected this, got -1 to 2\. Do that\.$"):
        require(torch.tensor(False), "Expected this", torch.tensor([2, -1]), "Do that.")
    with pytest.raises(ValueError, match=r"^Expected this, got 0\.5 to 0\.5\.$"):
        require(torch.tensor(False), "Expected this", torch.tensor(0.5))
    long = "Expected this" + " and that" * 100
    with pytest.raises(ValueError, match=rf"^{long}\.$"):
        require(torch.tensor(False), long)
