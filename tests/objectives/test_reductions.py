"""From terms to a scalar, also from none."""

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from declutr.objectives.reductions import nothing, reduced, reduced_where
from declutr.objectives.settings import above_zero, at_least_zero, one_of, scalar_reduction

TERMS = torch.tensor([1.0, 2.0, 6.0])


def test_reductions() -> None:
    assert reduced(TERMS, "mean").item() == 3
    assert reduced(TERMS, "sum").item() == 9
    assert reduced(TERMS, "none") is TERMS


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_no_terms(reduction: str) -> None:
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(4, requires_grad=True)
    loss = reduced(TERMS[:0], reduction, x, y)
    loss.backward()
    assert loss.item() == 0 and loss.shape == ()
    assert not x.grad.any() and not y.grad.any()
    assert nothing(x).item() == 0


@pytest.mark.parametrize("kept", [[True, True, True], [False, True, True], [False] * 3])
def test_of_some_terms(kept: list[bool]) -> None:
    """As if the others were not there; they get no gradient."""
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


def test_unknown_reduction() -> None:
    with pytest.raises(
        ValueError, match="Unknown reduction 'max': expected one of mean, sum, none"
    ):
        reduced(TERMS, "max")
    with pytest.raises(ConfigurationError, match="Unknown reduction 'none': expected one of mean"):
        scalar_reduction("none")


def test_settings() -> None:
    assert above_zero("tau", 0.1) == 0.1 and at_least_zero("margin", 0) == 0
    assert one_of("kind", "a", ("a", "b")) == "a"
    for value in (0, -1, float("nan")):
        with pytest.raises(ConfigurationError, match="tau must be above 0, got"):
            above_zero("tau", value)
    for value in (-0.5, float("nan")):
        with pytest.raises(ConfigurationError, match="margin must be 0 or above, got"):
            at_least_zero("margin", value)
    with pytest.raises(ConfigurationError, match="Unknown kind 'c': expected one of a, b"):
        one_of("kind", "c", ("a", "b"))
