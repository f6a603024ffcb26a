"""Settings that all recipes have from `base.libsonnet` change a recipe, or are refused."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from _jsonnet import evaluate_snippet

from declutr.recipes import recipe_names, recipe_path, recipes_folder

# All that base.libsonnet offers but `default_transformer`, which stands in for TRANSFORMER_MODEL:
# each with a value that no recipe has, or, for a truth value, code.
OTHERS: dict[str, Any] = {
    "transformer_model": "other transformer",
    "num_anchors": 70001,
    "num_positives": 70002,
    "max_span_len": 70003,
    "min_span_len": 70004,
    "batch_size": 70005,
    "num_epochs": 70006,
    "learning_rate": 0.70007,
    "optimizer": {"optimizer": {"type": "other optimizer"}, "learning_rate_scheduler": None},
    "temperature": 0.70008,
    "seed": 70009,
    "masked_language_modeling": "!super.masked_language_modeling",
}
# They differ from another recipe in a few keys.
VARIATIONS = {
    name
    for name in recipe_names()
    if "/ablations/" in name or '.jsonnet"' in recipe_path(name).read_text()
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


def changed(name: str, *choices: set[str]) -> list[Any]:
    """Evaluate a recipe with the values that `OTHERS` has of each choice of settings.

    It is one evaluation, because to begin one takes longer than most of them.
    """
    code = {s: v if s.startswith("masked") else json.dumps(v) for s, v in OTHERS.items()}
    texts = [", ".join(f"{setting}:: {code[setting]}" for setting in one) for one in choices]
    recipes = ", ".join(f"recipe {{ {text} }}" for text in texts)
    return json.loads(evaluated(f"local recipe = {imported(name)}; [{recipes}]"))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in VARIATIONS else ())
        for name in recipe_names()
    ],
)
def test_no_setting_of_the_base_is_without_effect(name: str) -> None:
    """Those that a recipe does not use are refused by their names, and the others change it."""
    used, found = set(OTHERS), None
    while found is None:
        try:
            (found,) = changed(name, used)
        except RuntimeError as error:
            refused = re.search(r"does not use (.*), which would change nothing", str(error))
            assert refused is not None, error
            unused = {setting.removesuffix("::") for setting in refused[1].split(" and ")}
            assert unused and unused <= used
            used -= unused
    values = set(map(str, leaves(found)))
    own = {s: OTHERS[s]["optimizer"]["type"] if s == "optimizer" else OTHERS[s] for s in used}
    others = [setting for setting in used if str(own[setting]) not in values]
    without = changed(name, *(used - {setting} for setting in others)) if others else []
    assert [s for s, config in zip(others, without, strict=True) if config == found] == []


def leaves(value: Any) -> Iterator[Any]:
    """Yield the texts and numbers in a configuration."""
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)
    else:
        yield value


def test_the_temperature_is_that_of_the_loss() -> None:
    names = [
        *("declutr", "simcse", "simcse_supervised", "simcse_selected", "cutoff", "clip", "clear"),
        *("scd", "static_scd", "moco", "cert", "mochi", "swav", "swav_views", "info_nce_views"),
        *("debiased", "hard_negative", "sup_con", "neighbours", "cross_batch_memory"),
        *("static_distilled", "static_declutr", "weighted_sum", "instance_discrimination"),
        *("soft_nearest_neighbours", "contrastive_tension_in_batch"),
    ]
    recipes = (f"({imported(name)} {{ temperature:: 0.777 }}).model.loss" for name in names)
    losses = dict(zip(names, json.loads(evaluated(f"[{', '.join(recipes)}]")), strict=True))
    losses["weighted_sum"] = losses["weighted_sum"]["objectives"][0]["objective"]
    losses["cross_batch_memory"] = losses["cross_batch_memory"]["loss"]
    assert {n: loss["temperature"] for n, loss in losses.items()} == dict.fromkeys(names, 0.777)


def test_a_recipe_on_top_may_use_what_its_own_does_not() -> None:
    on_top = 'model+: { loss: { type: "moco", temperature: settings.temperature } }'
    code = f"{imported('byol')} {{ temperature:: 0.3, local settings = self, {on_top} }}"
    assert json.loads(evaluated(code))["model"]["loss"]["temperature"] == 0.3
    with pytest.raises(RuntimeError, match=r"does not use num_anchors:: and max_span_len::, which"):
        evaluated(f"{code} {{ max_span_len:: 3, num_anchors:: 7 }}")


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith("static/")])
def test_sizes_of_a_static_encoder_go_around_its_whole_loss(name: str) -> None:
    both = "[recipe.model.loss, (recipe { dimensions:: [64] }).model.loss]"
    plain, cut = json.loads(evaluated(f"local recipe = {imported(name)}; {both}"))
    assert cut == {"type": "matryoshka", "loss": plain, "dimensions": [64]}
