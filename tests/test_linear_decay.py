"""The schedule of transformers' `Trainer`, driven by AllenNLP's trainer."""

from typing import Any

import pytest
import torch
import transformers
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

import declutr.plugin  # noqa: F401


def optimizer() -> torch.optim.Optimizer:
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in (0.3, 2.0)]
    return torch.optim.SGD(groups)


def schedule(optimizer: torch.optim.Optimizer, **settings: Any) -> Any:
    params = Params({"type": "linear_decay", **settings})
    return LearningRateScheduler.from_params(
        params, optimizer=optimizer, num_epochs=3, num_steps_per_epoch=7
    )


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [group["lr"] for group in optimizer.param_groups]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_every_update_has_the_rate_that_transformers_gives(share: float) -> None:
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


def test_it_goes_on_where_it_was() -> None:
    whole, resumed = optimizer(), optimizer()
    first = schedule(whole, warmup_share=0.1)
    for update in range(1, 9):
        first.step_batch(update)
    second = schedule(resumed, warmup_share=0.1)
    second.load_state_dict(first.state_dict())
    first.step_batch(9)
    second.step_batch()
    assert rates(whole) == rates(resumed) == pytest.approx([0.3 * 13 / 18, 2.0 * 13 / 18])


def test_what_it_cannot_do() -> None:
    with pytest.raises(ConfigurationError, match=r"warmup_share must be in \[0, 1\], got 10"):
        schedule(optimizer(), warmup_share=10)
    with pytest.raises(
        ConfigurationError, match='"linear_decay" needs to know the number of steps'
    ):
        LearningRateScheduler.from_params(
            Params({"type": "linear_decay"}), optimizer=optimizer(), num_epochs=3
        )
