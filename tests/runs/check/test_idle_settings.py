"""Settings that change nothing beside the others are told, and no others are."""

from typing import Any

import pytest

from declutr.runs.check.findings import Setting
from declutr.runs.check.idle_settings import idle_settings


def told(validated: bool = True, default_of: str | None = None, **values: Any) -> list[str]:
    """What is told of the settings of a loss; of "trainer.patience" as well, if it is given."""
    patience = [Setting("trainer.patience", values.pop("patience"))] if "patience" in values else []
    settings = [Setting(f"model.loss.{key}", value, default_of) for key, value in values.items()]
    return list(idle_settings([*settings, *patience], validated))


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"type": "pair_softmax", "activation": "relu", "hidden_dims": None}, "s is null"),
        ({"type": "declutr-glue", "fraction_seed": 1, "label_fraction": None}, "n is null"),
        ({"type": "reclaim", "rebuild_every": 9, "search": "exact"}, 'search is "exact"'),
        ({"type": "align_uniform", "alpha": 1, "align_weight": 0.0}, "align_weight is 0.0"),
    ],
)
def test_what_changes_nothing_is_told(values: dict[str, Any], why: str) -> None:
    (found,) = told(**values)
    assert found.startswith(f"model.loss.{list(values)[1]} changes nothing, as ") and why in found
    assert told(default_of="Loss", **values) == []


@pytest.mark.parametrize(
    "values",
    [
        {"type": "pair_softmax", "activation": "relu", "hidden_dims": [4]},
        {"type": "other", "activation": "relu", "hidden_dims": None},
        {"type": "reclaim", "rebuild_every": 9, "search": "approximate"},
        {"type": "reclaim", "folder": None, "storage": "memory"},
    ],
)
def test_what_has_an_effect_is_not_told(values: dict[str, Any]) -> None:
    assert told(**values) == []


def test_patience_needs_validation_data() -> None:
    (found,) = told(validated=False, patience=2)
    assert found == "trainer.patience changes nothing, as there is no validation data."
    assert told(patience=2) == told(validated=False, patience=None) == []
