"""InferSent's schedule against a plain loop, and its resuming."""

from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

import declutr.plugin  # noqa: F401

ACCURACIES = [60.0, 62.0, 62.0, 61.0, 65.0, 64.0, 64.0, 66.0, 66.5, 66.0]


def schedule(**settings: Any) -> Any:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in (0.1, 2.0)]
    params = Params({"type": "shrinking_decay", **settings})
    return LearningRateScheduler.from_params(params, optimizer=torch.optim.SGD(groups))


def rates(scheduler: Any) -> list[float]:
    return [group["lr"] for group in scheduler.optimizer.param_groups]


@pytest.mark.parametrize("decay, shrink", [(0.99, 5.0), (1.0, 2.0), (0.5, 1.0)])
def test_rates_are_those_of_a_plain_loop(decay: float, shrink: float) -> None:
    scheduler = schedule(decay=decay, shrink=shrink)
    rate, best = 0.1, -1e10
    for epoch, accuracy in enumerate(ACCURACIES, start=1):
        rate = rate * decay if epoch > 1 else rate
        assert rates(scheduler) == pytest.approx([rate, 20 * rate], rel=1e-12)
        if accuracy > best:
            best = accuracy
        else:
            rate = rate / shrink
        scheduler.step(accuracy)


@pytest.mark.parametrize("killed", range(1, 9))
def test_a_resumed_schedule_goes_on_as_it_would_have(killed: int) -> None:
    whole, resumed = schedule(), schedule()
    for epoch, accuracy in enumerate(ACCURACIES):
        whole.step(accuracy)
        if epoch == killed:
            resumed.load_state_dict(whole.state_dict())
        if epoch > killed:
            resumed.step(accuracy)
    assert rates(resumed) == rates(whole)


def test_what_is_refused() -> None:
    for settings in ({"decay": 0}, {"decay": 1.1}, {"shrink": 0.5}):
        with pytest.raises(ConfigurationError, match="decay must be above 0 and at most 1, and sh"):
            schedule(**settings)
    with pytest.raises(ConfigurationError, match="metric of every epoch: set validation_data_path"):
        schedule().step(None)
