"""Settings that all recipes have from `base.libsonnet` change a recipe, or are refused."""

import json

import pytest
from _jsonnet import evaluate_snippet

from declutr.recipes import recipe_names, recipe_path, recipes_folder

# All that base.libsonnet offers but `default_transformer`, which stands in for TRANSFORMER_MODEL.
OTHERS = {
    "transformer_model": '"other"',
    "num_anchors": "7",
    "num_positives": "7",
    "max_span_len": "777",
    "min_span_len": "7",
    "batch_size": "77",
    "num_epochs": "77",
    "learning_rate": "0.0777",
    "optimizer": '{ optimizer: { type: "sgd" }, learning_rate_scheduler: null }',
    "temperature": "0.777",
    "seed": "777",
    "masked_language_modeling": "!super.masked_language_modeling",
}


def evaluated(code: str) -> str:
    variables = {"TRANSFORMER_MODEL": "tiny"}
    folder = str(recipes_folder().parent)
    return evaluate_snippet("test", code, ext_vars=variables, jpathdir=[folder])


def imported(name: str) -> str:
    return f"(import {json.dumps(str(recipe_path(name)))})"


def test_all_settings_of_the_base_are_tried() -> None:
    base = '(import "training_config/base.libsonnet")'
    hidden = json.loads(
        evaluated(f"[f for f in std.objectFieldsAll({base}) if !std.objectHas({base}, f)]")
    )
    assert sorted(OTHERS) == sorted(set(hidden) - {"default_transformer"})


@pytest.mark.parametrize("name", recipe_names())
def test_no_setting_of_the_base_is_without_effect(name: str) -> None:
    plain = evaluated(imported(name))
    for setting, other in OTHERS.items():
        try:
            changed = evaluated(f"{imported(name)} {{ {setting}:: {other} }}")
        except RuntimeError as error:
            assert f"does not use {setting}::, which would change nothing" in str(error)
        else:
            assert changed != plain, setting


@pytest.mark.parametrize(
    "name",
    [
        *("declutr", "simcse", "simcse_supervised", "simcse_selected", "cutoff", "clip", "clear"),
        *("scd", "static_scd", "moco", "cert", "mochi", "swav", "swav_views", "info_nce_views"),
        *("debiased", "hard_negative", "sup_con", "neighbours", "cross_batch_memory"),
        *("static_distilled", "static_declutr", "weighted_sum", "instance_discrimination"),
        *("soft_nearest_neighbours", "contrastive_tension_in_batch"),
    ],
)
def test_the_temperature_is_that_of_the_loss(name: str) -> None:
    loss = json.loads(evaluated(f"({imported(name)} {{ temperature:: 0.777 }}).model.loss"))
    if name == "weighted_sum":
        loss = loss["objectives"][0]["objective"]
    if name == "cross_batch_memory":
        loss = loss["loss"]
    assert loss["temperature"] == 0.777


def test_a_recipe_on_top_may_use_what_its_own_does_not() -> None:
    on_top = 'model+: { loss: { type: "moco", temperature: settings.temperature } }'
    code = f"{imported('byol')} {{ temperature:: 0.3, local settings = self, {on_top} }}"
    assert json.loads(evaluated(code))["model"]["loss"]["temperature"] == 0.3
    with pytest.raises(RuntimeError, match=r"does not use max_span_len::"):
        evaluated(f"{code} {{ max_span_len:: 3 }}")
