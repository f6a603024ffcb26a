"""Schedules reach the optimizers inside "multi" by the switch, and only by it."""

import copy
from typing import Any

import pytest
import torch
from allennlp.common import Lazy

from declutr.bridge import lending, multi_optimizer

BASE = {"default": 0.5, "other": 0.25}


@pytest.fixture
def optimizers(bare: Any) -> Any:
    """The module of AllenNLP's optimizers, without the switch."""
    with lending.adamw():
        return bare("allennlp.training.optimizers")


def several_of(module: Any, empty: bool = False) -> tuple[Any, dict[str, torch.nn.Parameter]]:
    """Return an optimizer "multi" of two SGD, and its parameters: `b` is in a group of `other`.

    `c` is in a group of its own in the default optimizer, `a` in no group; `empty` leaves it out.
    """
    parameters = {name: torch.nn.Parameter(torch.zeros(1)) for name in "abc"[empty:]}

    def sgd(rate: float) -> Lazy[Any]:
        return Lazy(lambda **more: module.SgdOptimizer(lr=rate, **more))

    several = module.MultiOptimizer(
        model_parameters=list(parameters.items()),
        optimizers={name: sgd(rate) for name, rate in BASE.items()},
        parameter_groups=[(["b"], {"optimizer_name": "other"}), (["c"], {"lr": 0.125})],
    )
    return several, parameters


def updates(several: Any, parameters: dict[str, torch.nn.Parameter]) -> list[float]:
    """Return by how much a step changes each parameter where all gradients are -1: its rate."""
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    for parameter in parameters.values():
        parameter.grad = -torch.ones(1)
    several.step()
    return [float(parameter.detach() - before[name]) for name, parameter in parameters.items()]


def halved(several: Any) -> torch.optim.lr_scheduler.ExponentialLR:
    return torch.optim.lr_scheduler.ExponentialLR(several, gamma=0.5)


def test_a_schedule_sets_the_rates_that_are_trained_with(optimizers: Any) -> None:
    several, parameters = several_of(optimizers)
    schedule = halved(several)
    assert updates(several, parameters) == [0.5, 0.25, 0.125]
    schedule.step()
    assert updates(several, parameters) == [0.5, 0.25, 0.125]  # and the groups tell others
    assert [group["lr"] for group in several.param_groups] == [0.125, 0.0625, 0.25]
    assert multi_optimizer.scheduled_groups(optimizers)
    several, parameters = several_of(optimizers)
    schedule = halved(several)
    for factor in (1.0, 0.5, 0.25):
        assert [group["lr"] / factor for group in several.param_groups] == [0.25, 0.125, 0.5]
        assert updates(several, parameters) == [0.5 * factor, 0.25 * factor, 0.125 * factor]
        schedule.step()


@pytest.mark.parametrize("repaired_before", [True, False])
def test_a_resumed_schedule(optimizers: Any, repaired_before: bool) -> None:
    """Also one of a checkpoint that was written without the switch, from its next step on."""
    if repaired_before:
        multi_optimizer.scheduled_groups(optimizers)
    several, parameters = several_of(optimizers)
    schedule = halved(several)
    updates(several, parameters)
    schedule.step()
    saved = copy.deepcopy((several.state_dict(), schedule.state_dict()))
    if not repaired_before:
        multi_optimizer.scheduled_groups(optimizers)
    several, parameters = several_of(optimizers)
    schedule = halved(several)
    several.load_state_dict(saved[0])
    schedule.load_state_dict(saved[1])
    resumed_at = 0.5 if repaired_before else 1.0
    assert updates(several, parameters) == [rate * resumed_at for rate in (0.5, 0.25, 0.125)]
    schedule.step()
    assert updates(several, parameters) == [rate * resumed_at / 2 for rate in (0.5, 0.25, 0.125)]
    assert all("initial_lr" in group for group in several.param_groups)


def test_an_empty_group_stays(optimizers: Any) -> None:
    """As in AllenNLP, the last group is that of parameters which no pattern names."""
    multi_optimizer.scheduled_groups(optimizers)
    several, parameters = several_of(optimizers, empty=True)
    assert [len(group["params"]) for group in several.param_groups] == [1, 1, 0]
    schedule = halved(several)
    assert updates(several, parameters) == [0.25, 0.125]
    schedule.step()
    assert updates(several, parameters) == [0.125, 0.0625]
