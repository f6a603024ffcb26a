"""The schedule of transformers' `Trainer`, driven by AllenNLP's trainer."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

import declutr.plugin  # noqa: F401
from tests.resumed_runs import differences, outcome


def optimizer() -> torch.optim.Optimizer:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in (0.3, 2.0)]
    return torch.optim.SGD(groups)


def schedule(optimizer: torch.optim.Optimizer, **settings: Any) -> Any:
    length = {"num_epochs": 3, "num_steps_per_epoch": 7, **settings.pop("length", {})}
    params = Params({"type": "linear_decay", **settings})
    return LearningRateScheduler.from_params(params, optimizer=optimizer, **length)


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_every_step_has_the_rate_of_transformers(share: float) -> None:
    ours, theirs = optimizer(), optimizer()
    scheduler = schedule(ours, warmup_share=share)
    warmup = {0.0: 0, 0.1: 3, 0.5: 11, 1.0: 21}[share]
    oracle = transformers.get_linear_schedule_with_warmup(theirs, warmup, 21)
    assert rates(ours) == rates(theirs)  # of the first update
    for update in range(1, 24):  # the last ones are more than were foreseen
        scheduler.step_batch(update)  # AllenNLP steps before the optimizer ...
        assert rates(ours) == pytest.approx(rates(theirs), rel=1e-12)
        theirs.step()
        oracle.step()  # ... and transformers after it
        if update % 7 == 0:
            scheduler.step(None)


def test_a_restored_schedule_continues_from_its_state() -> None:
    whole, resumed = optimizer(), optimizer()
    first = schedule(whole, warmup_share=0.1)
    for update in range(1, 9):
        first.step_batch(update)
    second = schedule(resumed, warmup_share=0.1)
    second.load_state_dict(first.state_dict())
    first.step_batch(9)
    second.step_batch()
    assert rates(whole) == rates(resumed) == pytest.approx([0.3 * 13 / 18, 2.0 * 13 / 18])


def test_a_stage_of_combined_begins_with_its_own_first_step() -> None:
    """The trainer passes the step of the whole run, which the stage must not count by."""
    ours, alone = optimizer(), optimizer()
    stages = [[1, {"type": "constant"}], [3, {"type": "linear_decay", "warmup_share": 0.1}]]
    combined = schedule(ours, type="combined", schedulers=stages, length={"num_epochs": 4})
    for update in range(1, 8):
        combined.step_batch(update)
        assert rates(ours) == [0.3, 2.0]
    combined.step(None)
    scheduler = schedule(alone, warmup_share=0.1)
    for update in range(1, 22):
        combined.step_batch(7 + update)
        scheduler.step_batch(update)
        assert rates(ours) == rates(alone)
        if update % 7 == 0:
            combined.step(None)
    assert rates(ours) == pytest.approx([0.3 / 18, 2.0 / 18])


DECAY = {"type": "linear_decay", "warmup_share": 0.3}


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheduler",
    [DECAY, {"type": "combined", "schedulers": [[1, DECAY], [3, DECAY]]}],
    ids=["alone", "combined"],
)
def test_a_resumed_run_has_the_same_rates(scheduler: dict[str, Any], tmp_path: Path) -> None:
    """It resumes between epochs, within one, and after the last step of one."""
    whole = outcome(tmp_path / "whole", learning_rate_scheduler=scheduler)
    (updates,) = (value for name, value in whole.items() if name.endswith("/updates"))
    assert updates == (9 if scheduler is DECAY else 6)
    for place in ("e1_b0", "e1_b2", "e2_b3"):
        resumed = outcome(tmp_path / "cut" / place, learning_rate_scheduler=scheduler)
        assert differences(whole, resumed) == []


def test_a_wrong_share_or_an_unknown_length_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"warmup_share must be in \[0, 1\], got 10"):
        schedule(optimizer(), warmup_share=10)
    with pytest.raises(ConfigurationError, match='"linear_decay" needs to know the number of st'):
        schedule(optimizer(), length={"num_steps_per_epoch": None})
