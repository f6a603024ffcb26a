"""Tests of the annealed weight of the KL term."""

import pytest
from allennlp.common.checks import ConfigurationError

from declutr.task_models.text_vae.layers import KlWeight


def test_the_weight_rises_linearly_to_one() -> None:
    weight = KlWeight(4)
    assert [float(weight()) for _ in range(7)] == [0, 0.25, 0.5, 0.75, 1, 1, 1]
    assert [float(KlWeight(4, 0.2)()), float(KlWeight(0)()), float(KlWeight(3, 1.0)())] == [
        pytest.approx(0.2),
        1,
        1,
    ]


def test_validation_does_not_count() -> None:
    weight = KlWeight(4)
    weight()
    assert float(weight.eval()()) == float(weight()) == 0.25
    assert float(weight.train()()) == 0.25
    assert float(weight()) == 0.5


def test_a_resumed_weight_continues() -> None:
    weight, resumed = KlWeight(4), KlWeight(4)
    for _ in range(3):
        weight()
    resumed.load_state_dict(weight.state_dict())
    assert [float(resumed()), float(resumed())] == [0.75, 1]


@pytest.mark.parametrize("steps, initial", [(-1, 0.0), (1, -0.1), (1, 1.1)])
def test_wrong_settings_are_refused(steps: int, initial: float) -> None:
    with pytest.raises(ConfigurationError, match=f"annealing_steps of 0 or more.*{steps} and"):
        KlWeight(steps, initial)
