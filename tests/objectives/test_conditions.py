"""Conditions that are checked without a wait."""

import pytest
import torch

from declutr.objectives.conditions import require
from tests.objectives.waits import NeverWaits


def test_what_holds_costs_no_look() -> None:
    with NeverWaits():
        require(torch.tensor(True), "Expected this", torch.arange(3), "Do that.")


def test_what_does_not_hold_is_told() -> None:
    with pytest.raises(ValueError, match=r"^Expected this, got -1 to 2\. Do that\.$"):
        require(torch.tensor(False), "Expected this", torch.tensor([2, -1]), "Do that.")
    with pytest.raises(ValueError, match=r"^Expected this, got 0\.5 to 0\.5\.$"):
        require(torch.tensor(False), "Expected this", torch.tensor(0.5))
    long = "Expected this" + " and that" * 100
    with pytest.raises(ValueError, match=rf"^{long}\.$"):
        require(torch.tensor(False), long)
