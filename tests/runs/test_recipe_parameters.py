"""Keys of recipes reach the configuration, and those that would have no effect are refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from allennlp.common import Params

from declutr.recipes import UnknownRecipe, recipe_path
from declutr.runs.known_keys import RecipeError
from declutr.runs.recipe_parameters import recipe_parameters, recipe_settings

RECIPE = """
{
    batch_size:: 16,
    temperature:: 0.05,
    needed:: error "Set needed:: to a number.",
    local settings = self,
    trainer: { type: "declutr", num_epochs: 1, callbacks: [{ type: "run_record" }] },
    model: { type: "declutr", path: std.extVar("TRANSFORMER_MODEL"), loss: { temperature: 1 } },
    dataset_reader: { type: "sentences" },
    data_loader: { batch_size: settings.batch_size + settings.needed },
    train_data_path: null,
}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipe with a setting that has to be given, and one without effect."""
    monkeypatch.delenv("TRANSFORMER_MODEL", raising=False)
    file = tmp_path / 'a "recipe" ä.jsonnet'
    file.write_text(RECIPE)
    return file


def parameters(recipe: Path, overrides: Any = None, **keys: Any) -> dict[str, Any]:
    return recipe_parameters(recipe, "tiny", {"needed": 1, **keys}, overrides).as_dict(quiet=True)


def test_settings_and_keys(recipe: Path) -> None:
    keys = {
        "trainer.num_epochs": np.int64(3),
        "trainer.callbacks.0.validate_start": False,
        "trainer.patience": 2,
        "train_data_path": Path("docs.txt"),
        "distributed": {"cuda_devices": [0, 1]},
    }
    config = parameters(recipe, '{"model.loss": {type: "n_pair", a: 1 + 1}}', batch_size=32, **keys)
    assert config == {
        "trainer": {
            "type": "declutr",
            "num_epochs": 3,
            "patience": 2,
            "callbacks": [{"type": "run_record", "validate_start": False}],
        },
        "model": {"type": "declutr", "path": "tiny", "loss": {"type": "n_pair", "a": 2}},
        "dataset_reader": {"type": "sentences"},
        "data_loader": {"batch_size": 33},
        "train_data_path": "docs.txt",
        "distributed": {"cuda_devices": [0, 1]},
    }
    assert recipe_settings(recipe) == ["batch_size", "needed", "temperature"]


def test_equal_what_the_command_makes_of_a_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFORMER_MODEL", "tiny")
    changes = {"trainer.num_epochs": 2, "train_data_path": "docs.txt"}
    theirs = Params.from_file(str(recipe_path("simcse")), json.dumps(changes)).params
    assert json.dumps(recipe_parameters("simcse", overrides=changes).params) == json.dumps(theirs)
    assert json.dumps(recipe_parameters("simcse", keys=changes).params) == json.dumps(theirs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_epoch": 3}, r"has no key 'num_epoch'\. Expected a setting"),
        ({"batch_sise": 3}, r"the nearest: batch_size\."),
        ({"trainer.num_epoch": 3}, r"the nearest: trainer\.num_epochs\."),
        ({"model.loss.temprature": 3}, r"the nearest: model\.loss\.temperature\."),
        ({"modle.loss.temperature": 3}, r"has no key 'modle.*the nearest: model\."),
        ({"trainer.callbacks.1.type": 3}, r"nearest: trainer\.callbacks\.0\."),
        ({"model.type.x": 3}, r"There are no keys in 'model.type', which is \"declutr\"\."),
        ({"temperature": 0.1}, r"temperature=0.1 has no effect .* Set model\.loss\.temperature of"),
        ({"batch_size": {1}}, r"given set, expected a value of JSON"),
        ({"needed": None}, r"could not be evaluated: .*binary operator"),
    ],
)
def test_refused(recipe: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        parameters(recipe, **changes)


def test_a_tilde_is_the_home_of_the_user(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/of-tests")
    found = recipe_parameters(recipe, "~/tiny", {"needed": 1}).as_dict(quiet=True)
    assert found["model"]["path"] == "/home/of-tests/tiny"


def test_the_model_has_to_be_given_and_used(recipe: Path) -> None:
    assert parameters(recipe, temperature=0.05)  # as it is in the recipe
    with pytest.raises(RecipeError, match=r"Expected model=, a folder or a name on the hub, or"):
        recipe_parameters(recipe, keys={"needed": 1})
    recipe.write_text(RECIPE.replace("{", '{ default_transformer:: "tiny",', 1))
    assert recipe_parameters(recipe, keys={"needed": 1})["model"]["path"] == "tiny"
    with pytest.raises(RecipeError, match=r"evaluated: Set needed:: to a number\."):
        recipe_parameters(recipe, "tiny")
    recipe.write_text("{trainer: {}}")
    with pytest.raises(RecipeError, match=r"so that model='tiny' would have no effect"):
        recipe_parameters(recipe, "tiny")
    with pytest.raises(RecipeError, match=r"overrides are list, expected an object of keys"):
        recipe_parameters(recipe, overrides="[1]")
    with pytest.raises(UnknownRecipe, match=r"nearest: .*simcse"):
        recipe_parameters("simcs")
