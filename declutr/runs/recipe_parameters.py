"""AllenNLP's parameters of a recipe with changes: its own settings, and keys of its configuration.

A recipe has hidden fields, `batch_size:: 16`, which are its settings, and visible ones, which are
the configuration. Both can be changed by name; what the recipe has is found by evaluating it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allennlp.common import Params
from allennlp.common.params import with_overrides

import declutr.plugin  # noqa: F401 - registers the names that recipes use
from declutr.recipes import recipe_path
from declutr.runs.known_keys import RecipeError, require_known

MODEL_VARIABLE = "TRANSFORMER_MODEL"
"""The Jsonnet variable by which recipes take the pretrained transformer."""


def recipe_parameters(
    recipe: str | os.PathLike,
    model: str | os.PathLike | None = None,
    keys: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | str | None = None,
) -> Params:
    """Return the parameters of a recipe, as `allennlp train` makes them of its file.

    # Parameters

    recipe : the path of a recipe, or a name that `declutr.recipes.recipe_path` knows: `"simcse"`.
    model : the pretrained transformer, a folder or a name on the hub. By default it is the
        environment variable `TRANSFORMER_MODEL`, as for the command.
    keys : changes, each under the name of a setting of the recipe (`batch_size`, `temperature`: see
        `recipe_settings`) or a key of its configuration (`train_data_path`, `trainer.num_epochs`).
    overrides : changes of the configuration alone, as `allennlp train -o` takes them, also as a
        string of Jsonnet. An object takes the place of the whole object in the recipe.

    # Raises

    `RecipeError` : the recipe cannot be evaluated or does not use the model; a key is unknown; a
        setting has no effect in this recipe.
    `declutr.recipes.UnknownRecipe` (a `ValueError`) : there is no such recipe.
    """
    source = _Recipe(recipe_path(os.fspath(recipe)), model)
    hidden = set(source.settings())
    changed = {name: value for name, value in (keys or {}).items() if name in hidden}
    others: dict[str, Any] = dict(source.parsed(overrides)) if overrides else {}
    others |= {name: value for name, value in (keys or {}).items() if name not in hidden}
    config = source.evaluated(changed)
    _require_effects(source, config, changed)
    require_known(others, config, sorted(hidden), source.path)
    try:
        merged = with_overrides(config, json.loads(as_json(others))) if others else config
    except ValueError as error:
        raise RecipeError(f"{source.path}: {error}") from error
    return Params(merged)


def recipe_settings(recipe: str | os.PathLike) -> list[str]:
    """Return the names of the settings of a recipe: the hidden fields of its Jsonnet file.

    # Raises

    `RecipeError` : the recipe cannot be evaluated.
    """
    return _Recipe(recipe_path(os.fspath(recipe)), None).settings()


class _Recipe:
    """A recipe file and the transformer it is evaluated with."""

    def __init__(self, path: Path, model: str | os.PathLike | None) -> None:
        self.path = path.absolute()
        # As AllenNLP's `Params.from_file`: environment variables are variables of Jsonnet.
        self._variables = {k: v for k, v in os.environ.items() if not _holds_surrogates(v)}
        if model is not None:
            if not self._uses_model():
                raise RecipeError(
                    f"{self.path} does not take its transformer from {MODEL_VARIABLE}, so that "
                    f"model={os.fspath(model)!r} would have no effect. Leave it out, or change the "
                    "keys of the configuration that name a transformer."
                )
            self._variables[MODEL_VARIABLE] = os.fspath(model)

    def settings(self) -> list[str]:
        """Return the names of the hidden fields."""
        # Only their names: a field may have no value until the recipe is given one.
        return self._run(
            "[field for field in std.objectFieldsAll(recipe) if !std.objectHas(recipe, field)]"
        )

    def evaluated(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration with these values of settings."""
        fields = ", ".join(f"{json.dumps(k)}:: {as_json(v)}" for k, v in settings.items())
        return self._run(f"recipe {{ {fields} }}")

    def default(self, setting: str) -> Any:
        """Return the value of a setting in the recipe; raise `RecipeError` if it has none."""
        return self._run(f"recipe[{json.dumps(setting)}]")

    def parsed(self, overrides: Mapping[str, Any] | str) -> Mapping[str, Any]:
        """Return overrides as an object; a string is evaluated as Jsonnet."""
        found = self._run(overrides) if isinstance(overrides, str) else overrides
        if not isinstance(found, Mapping):
            raise RecipeError(
                f"overrides are {type(found).__name__}, expected an object of keys, such as "
                '{"trainer.num_epochs": 3}.'
            )
        return found

    def _uses_model(self) -> bool:
        kept = self._variables.pop(MODEL_VARIABLE, None)
        try:
            self.evaluated({})
        except RecipeError as error:
            return MODEL_VARIABLE in str(error)
        finally:
            if kept is not None:
                self._variables[MODEL_VARIABLE] = kept
        return False

    def _run(self, expression: str) -> Any:
        from _jsonnet import evaluate_snippet

        place = json.dumps(str(self.path), ensure_ascii=False)
        snippet = f"local recipe = import {place}; {expression}"
        try:
            return json.loads(evaluate_snippet("keys", snippet, ext_vars=self._variables))
        except RuntimeError as error:
            raise RecipeError(self._told(str(error))) from error

    def _told(self, error: str) -> str:
        first = error.strip().splitlines()[0].removeprefix("RUNTIME ERROR: ")
        if MODEL_VARIABLE in first and "xternal variable" in first:
            return (
                f"{self.path} needs a transformer to begin with. Expected model=, a folder or a "
                f"name on the hub, or the environment variable {MODEL_VARIABLE}."
            )
        return f"{self.path} could not be evaluated: {first}"


def _require_effects(source: _Recipe, config: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise if one of the changed settings leaves the configuration as it is."""
    for name, value in settings.items():
        others = {key: value for key, value in settings.items() if key != name}
        try:
            if source.evaluated(others) != config:
                continue
            if source.default(name) == json.loads(as_json(value)):
                continue  # it is given as it is in the recipe
        except RecipeError:  # without a value for this setting there is no configuration
            continue
        alike = [key for key in Params(config).as_flat_dict() if key.endswith(f".{name}")]
        instead = f" Set {' or '.join(alike)} of its configuration." if alike else ""
        raise RecipeError(
            f"{name}={value!r} has no effect in {source.path}, which overrides this setting or "
            f"does not use it.{instead}"
        )


def as_json(value: Any) -> str:
    """Return a value, which may hold paths and numbers of numpy, as JSON, which Jsonnet reads.

    # Raises

    `RecipeError` : the value holds something that JSON has no form for.
    """

    def plain(other: Any) -> Any:
        if isinstance(other, os.PathLike):
            return os.fspath(other)
        if hasattr(other, "item") and getattr(other, "ndim", 1) == 0:
            return other.item()
        raise RecipeError(
            f"A key is given {type(other).__name__}, expected a value of JSON: a string, a number, "
            "a boolean, None, a list or a dict."
        )

    return json.dumps(value, default=plain, ensure_ascii=False)


def _holds_surrogates(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
