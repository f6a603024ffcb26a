"""Tests of checks of settings and of tensor values."""

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from declutr.objectives.numerics import (
    above_zero,
    at_least_zero,
    one_of,
    require,
    scalar_reduction,
)
from tests.objectives.waits import NeverWaits


def test_only_reductions_to_a_scalar_are_allowed() -> None:
    assert scalar_reduction("sum") == "sum"
    with pytest.raises(ConfigurationError, match="Unknown reduction 'none': expected one of mean"):
        scalar_reduction("none")


def test_settings_out_of_range_raise() -> None:
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


def test_a_condition_that_holds_does_not_read_the_values() -> None:
    with NeverWaits():
        require(torch.tensor(True), "Expected this", torch.arange(3), "Do that.")


def test_a_condition_that_does_not_hold_raises_with_values_and_advice() -> None:
    with pytest.raises(ValueError, match=r"^Expected this, got -1 to 2\. Do that\.$"):
        require(torch.tensor(False), "Expected this", torch.tensor([2, -1]), "Do that.")
    with pytest.raises(ValueError, match=r"^Expected this, got 0\.5 to 0\.5\.$"):
        require(torch.tensor(False), "Expected this", torch.tensor(0.5))
    long = "Expected this" + " and that" * 100
    with pytest.raises(ValueError, match=rf"^{long}\.$"):
        require(torch.tensor(False), long)
