"""Schedules set the rates that their configurations say by the switches, and only by them.

Runs that are resumed with each schedule are in `tests/test_resumed_runs.py`.
"""

import copy
import importlib
import logging
import math
import warnings
from typing import Any

import pytest
import torch
from allennlp.common import Lazy, Params
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

from declutr.bridge import lending, repairs, schedules

SCHEDULERS = "allennlp.training.learning_rate_schedulers"
BASE = {"default": 0.5, "other": 0.25}


@pytest.fixture
def optimizers(bare: Any) -> Any:
    """The module of AllenNLP's optimizers, without the switch."""
    importlib.import_module("allennlp.training")  # borrows, too, and gives back
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
    schedules.scheduled_groups(optimizers)
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
        schedules.scheduled_groups(optimizers)
    several, parameters = several_of(optimizers)
    schedule = halved(several)
    updates(several, parameters)
    schedule.step()
    saved = copy.deepcopy((several.state_dict(), schedule.state_dict()))
    if not repaired_before:
        schedules.scheduled_groups(optimizers)
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
    schedules.scheduled_groups(optimizers)
    several, parameters = several_of(optimizers, empty=True)
    assert [len(group["params"]) for group in several.param_groups] == [1, 1, 0]
    schedule = halved(several)
    assert updates(several, parameters) == [0.25, 0.125]
    schedule.step()
    assert updates(several, parameters) == [0.125, 0.0625]


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)


def rates_on_plateau(module: Any, scores: list[float], **options: Any) -> list[float]:
    """Return the rate after each score, of which more is better, halved after each bad one."""
    adjusted = optimizer()
    schedule = module.ReduceOnPlateauLearningRateScheduler(
        adjusted, factor=0.5, patience=0, **options
    )
    rates = []
    for score in scores:
        schedule.step(score)
        rates.append(adjusted.param_groups[0]["lr"])
        assert schedule.lr_scheduler.threshold == options.get("threshold", 1e-4)
    return rates


@pytest.fixture
def plateau_module(bare: Any) -> Any:
    module = bare(f"{SCHEDULERS}.pytorch_lr_schedulers")
    repairs.plateau_verbose(module)
    return module


FALLING, RISING = [-0.9, -0.8, -0.4], [-0.4, -0.8, -0.9]  # losses, as AllenNLP's scores


def test_a_plateau_is_where_the_metric_gets_no_better(plateau_module: Any) -> None:
    assert rates_on_plateau(plateau_module, FALLING) == [1, 0.5, 0.25]
    assert rates_on_plateau(plateau_module, [-0.5] * 3, mode="max") == [1, 1, 1]
    schedules.plateaus(plateau_module)
    for mode in ("min", "max"):
        for offset in (0, 2):  # of `-loss` and of `+accuracy`
            for options in ({}, {"threshold_mode": "abs"}):
                given = {"mode": mode, **options}
                good, bad = ([score + offset for score in one] for one in (FALLING, RISING))
                assert rates_on_plateau(plateau_module, good, **given) == [1, 1, 1]
                assert rates_on_plateau(plateau_module, bad, **given) == [1, 0.5, 0.25]
                assert rates_on_plateau(plateau_module, good[:1] * 3, **given) == [1, 0.5, 0.25]
    assert rates_on_plateau(plateau_module, FALLING, threshold=0.2) == [1, 0.5, 0.5]
    assert rates_on_plateau(plateau_module, FALLING, threshold=0.2, mode="max") == [1, 0.5, 0.5]


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("repaired_before", [True, False])
def test_a_resumed_plateau(
    plateau_module: Any, mode: str, repaired_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A checkpoint of an earlier release has the worst loss as the best one."""
    cls = plateau_module.ReduceOnPlateauLearningRateScheduler
    if repaired_before:
        schedules.plateaus(plateau_module)
    begun = cls(optimizer(), mode=mode, patience=0)
    for score in (-0.9, -0.5):
        begun.step(score)
    if not repaired_before:
        schedules.plateaus(plateau_module)
    adjusted = optimizer()
    resumed = cls(adjusted, mode=mode, patience=0)
    with caplog.at_level(logging.WARNING):
        resumed.load_state_dict(copy.deepcopy(begun.state_dict()))
    lost = mode == "min" and not repaired_before
    assert ("looks for the best epoch anew" in caplog.text) is lost
    rates = []
    for score in (-0.45, -0.4, -0.6):
        resumed.step(score)
        rates.append(adjusted.param_groups[0]["lr"])
    assert rates == [1, 1, pytest.approx(0.1)]
    assert resumed.state_dict()["best"] == (0.4 if mode == "min" else -0.4)


def rates_of(schedule: Any, adjusted: Any, epochs: int, steps: int = 2) -> list[float]:
    """Return the rate of each update, with the schedule called as AllenNLP's trainer does."""
    found = []
    for step in range(1, epochs * steps + 1):
        schedule.step_batch(step)
        found.append(adjusted.param_groups[0]["lr"])
        adjusted.step()
        if step % steps == 0:
            schedule.step(0.5)
    return found


def test_warmups_move_once_a_step(bare: Any, caplog: pytest.LogCaptureFixture) -> None:
    module = bare(f"{SCHEDULERS}.learning_rate_scheduler")

    def rates(name: str, *options: int, epochs: int = 2) -> list[float]:
        adjusted = optimizer()
        return rates_of(getattr(module, name)(adjusted, 2, *options), adjusted, epochs)

    constant, *cosines = schedules._BY_STEP
    assert rates(constant) == [0, 0, 0.5, 0.5]
    schedules.warmups_by_step(module)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert rates(constant) == [0.5, 1, 1, 1]
    for name in cosines:
        assert rates(name, 4, epochs=3) == pytest.approx([0.5, 1, 0.5, 0, 0, 0])
    assert "not its epochs" not in caplog.text
    adjusted = optimizer()
    alone = getattr(module, constant)(adjusted, 2)
    adjusted.step()
    alone.step()
    assert adjusted.param_groups[0]["lr"] == 0.5
    rates(cosines[0], 2)  # as before, when they counted epochs
    assert caplog.text.count("num_training_steps is 2, and the first epoch has ended") == 1


def test_a_warmup_goes_on(bare: Any, caplog: pytest.LogCaptureFixture) -> None:
    module = bare(f"{SCHEDULERS}.learning_rate_scheduler")

    def make() -> tuple[Any, Any]:
        adjusted = optimizer()
        return module.CosineWithWarmupLearningRateScheduler(adjusted, 2, 8), adjusted

    earlier, adjusted = make()
    rates_of(earlier, adjusted, 3)  # three moves in six steps
    of_epochs = copy.deepcopy(earlier.state_dict())
    schedules.warmups_by_step(module)
    whole, adjusted = make()
    expected = rates_of(whole, adjusted, 4)
    begun, adjusted = make()
    rates_of(begun, adjusted, 2)
    for state, told in ((begun.state_dict(), False), (of_epochs, True)):
        resumed, adjusted = make()
        resumed.load_state_dict(copy.deepcopy(state))
        assert ("It goes on from its step 3, once a step" in caplog.text) is told
        assert rates_of(resumed, adjusted, 2) == [*expected, 0.0][4 - told :][:4]


@pytest.mark.parametrize("noted", [True, False])
def test_a_warmup_that_goes_on_at_the_end_of_an_epoch_does_not_move_there(
    bare: Any, noted: bool
) -> None:
    """No step has been taken since then; checkpoints of up to 2.4.13 do not note who moves it."""
    module = bare(f"{SCHEDULERS}.learning_rate_scheduler")
    schedules.warmups_by_step(module)

    def make() -> tuple[Any, Any]:
        adjusted = optimizer()
        return module.ConstantWithWarmupLearningRateScheduler(adjusted, 8), adjusted

    expected = rates_of(*make(), 3)
    begun, adjusted = make()
    rates_of(begun, adjusted, 1)
    for step in (3, 4):  # of the second epoch, which has not been ended
        begun.step_batch(step)
    state = copy.deepcopy(begun.state_dict())
    assert state["moves_by_step"] if noted else state.pop("moves_by_step")
    resumed, adjusted = make()
    resumed.load_state_dict(state)
    resumed.step(0.5)
    assert rates_of(resumed, adjusted, 1) == expected[4:]
    alone, adjusted = make()
    alone.load_state_dict(make()[0].state_dict() | {"moves_by_step": False})
    alone.step()
    assert adjusted.param_groups[0]["lr"] == 1 / 8


def test_every_schedule_of_several_counts_on_its_own(bare: Any) -> None:
    """It is as if it were alone from its first epoch on."""
    module = bare(f"{SCHEDULERS}.combined")

    def rates(later: dict[str, Any]) -> list[float]:
        adjusted = optimizer()
        parts = [(1, {"type": "constant"}), (2, later)]
        lazy = [(epochs, Lazy(LearningRateScheduler, Params(dict(part)))) for epochs, part in parts]
        schedule = module.CombinedLearningRateScheduler(adjusted, lazy, num_steps_per_epoch=2)
        return rates_of(schedule, adjusted, 3)

    decay, halved = {"type": "polynomial_decay"}, {"type": "exponential", "gamma": 0.5}
    slanted = {"type": "slanted_triangular", "cut_frac": 0.5, "ratio": 2}
    assert rates(decay) == [1, 1, 0.25, 0, 0, 0]
    assert rates(halved) == [1, 1, 0.5, 0.5, 0.25, 0.25]
    with pytest.raises(ZeroDivisionError):
        rates(slanted)
    schedules.combined_steps(module)
    assert rates(decay) == [1, 1, 0.75, 0.5, 0.25, 0]
    assert rates(halved) == [1, 1, 1, 1, 0.5, 0.5]
    assert rates(slanted) == [1, 1, 0.75, 1, 0.75, 0.5]


def test_any_epoch_is_better_than_one_without_a_number(bare: Any) -> None:
    module = bare("allennlp.training.metric_tracker")

    def best(*scores: float, saved_after: int = 9) -> int | None:
        tracker = module.MetricTracker("+spearman", patience=2)
        for number, score in enumerate(scores):
            tracker.add_metrics({"spearman": score})
            if number == saved_after:
                state = tracker.state_dict()
                schedules.undefined_metrics(module)
                tracker = module.MetricTracker("+spearman", patience=2)
                tracker.load_state_dict(state)
        assert tracker.should_stop_early() is (tracker.best_epoch < len(scores) - 2)
        return tracker.best_epoch

    nan = math.nan
    assert best(nan, 0.5, 0.7) == 0
    assert best(nan, 0.5, 0.7, saved_after=0) == 2  # from the checkpoint of an earlier release
    assert best(nan, 0.5, 0.7) == 2 and best(nan, nan, nan) == 0
    assert best(0.5, nan, 0.4) == 0 and best(-0.5, nan, -0.4) == 2


@pytest.mark.parametrize("epochs, told", [(1, "1/32 throughout"), (3, "no warm-up")])
def test_an_unknown_number_of_steps_is_told(
    epochs: int, told: str, bare: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = bare(f"{SCHEDULERS}.slanted_triangular")

    def rates(**known: int) -> list[float]:
        caplog.clear()
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=32.0)
        schedule = module.SlantedTriangular(optimizer, num_epochs=epochs, **known)
        found = []
        for step in range(1, 21):
            schedule.step_batch(step)
            found.append(optimizer.param_groups[0]["lr"])
        return found

    wrong = rates()
    assert (wrong == [1.0] * 20) is (epochs == 1) and caplog.text == ""
    schedules.unknown_lengths(module)
    assert rates() == wrong and told in caplog.text
    assert max(rates(num_steps_per_epoch=20)) == 32.0 and caplog.text == ""
