"""Tests of the schedule "piecewise_constant"."""

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

from declutr.training.piecewise_constant import PiecewiseConstant


def optimizer(*rates: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(
        [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate} for rate in rates], lr=1.0
    )


def rates_of_steps(schedule: PiecewiseConstant, steps: int) -> list[list[float]]:
    found = []
    for step in range(1, steps + 1):
        schedule.step_batch(step)
        found.append([group["lr"] for group in schedule.optimizer.param_groups])
        schedule.step(None)  # at the end of an epoch nothing changes
    return found


def test_rates_are_those_of_tensorflow() -> None:
    """A boundary is the last step of its rate, as `x <= boundary` is in TensorFlow's schedule."""
    settings = Params({"type": "piecewise_constant", "boundaries": [1, 4], "factors": [1, 0.5, 0]})
    schedule = LearningRateScheduler.from_params(
        settings, optimizer=optimizer(2.0, 4.0), num_epochs=1, num_steps_per_epoch=None
    )
    assert isinstance(schedule, PiecewiseConstant)
    expected = [2.0, 2.0, 1.0, 1.0, 1.0, 0.0, 0.0]  # of steps 0 to 6
    assert rates_of_steps(schedule, 7) == [[rate, 2 * rate] for rate in expected]


def test_a_resumed_schedule_goes_on() -> None:
    whole = PiecewiseConstant(optimizer(1.0), [2, 3], [1.0, 0.5, 0.25])
    resumed = PiecewiseConstant(optimizer(1.0), [2, 3], [1.0, 0.5, 0.25])
    before = rates_of_steps(whole, 3)
    resumed.load_state_dict(whole.state_dict())
    assert before == [[1.0]] * 3
    assert rates_of_steps(resumed, 3) == rates_of_steps(whole, 3) == [[0.5], [0.25], [0.25]]


@pytest.mark.parametrize(
    ("boundaries", "factors"), [([3, 3], [1, 2, 3]), ([-1], [1, 2]), ([1], [1]), ([], [])]
)
def test_boundaries_and_factors_must_fit(boundaries: list[int], factors: list[float]) -> None:
    with pytest.raises(ConfigurationError, match="boundaries that rise from 0 or above, and one f"):
        PiecewiseConstant(optimizer(1.0), boundaries, factors)
