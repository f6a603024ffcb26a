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
from declutr.bridge.configurations import TRANSFORMER, with_home
from declutr.bridge.own_names import strings_in
from declutr.recipes import recipe_path, recipes_folder
from declutr.recipes.evaluation import default_transformer
from declutr.runs.known_keys import RecipeError, require_known


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
        environment variable `TRANSFORMER_MODEL`, or else what the recipe has as default.
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
        self._variables = with_home(
            {k: v for k, v in os.environ.items() if not _holds_surrogates(v)}
        )
        self._model = None if model is None else os.path.expanduser(os.fspath(model))
        if self._model is not None:
            self._variables[TRANSFORMER] = self._model

    def settings(self) -> list[str]:
        """Return the names of the hidden fields."""
        # Only their names: a field may have no value until the recipe is given one.
        return self._run(
            "[field for field in std.objectFieldsAll(recipe) if !std.objectHas(recipe, field)]"
        )

    def evaluated(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configuration with these values of settings.

        # Raises

        `RecipeError` : there is none, or a setting or the model has no effect on it.
        """
        fields = {name: f"{json.dumps(name)}:: {as_json(v)}" for name, v in settings.items()}
        changed = f"recipe {{ {', '.join(fields.values())} }}"
        others = {k: ", ".join(v for name, v in fields.items() if name != k) for k in fields}
        same = {k: f"recipe {{ {v} }} == {changed}" for k, v in others.items()}
        try:
            # All in one evaluation: to begin one takes longer than the recipe itself.
            config, *found = self._run(f"[{', '.join([changed, *same.values()])}]")
        except RecipeError:  # without one of the settings, there may be no configuration
            config, found = self._run(changed), [self._true(question) for question in same.values()]
        for (name, value), is_same in zip(settings.items(), found, strict=True):
            if is_same and self._run(f"recipe[{json.dumps(name)}]") != value:
                self._refuse(name, value, config)
        if self._model is not None and not any(self._model in text for text in strings_in(config)):
            raise RecipeError(
                f"{self.path} does not take its transformer from {TRANSFORMER}, so that "
                f"model={self._model!r} would have no effect. Leave it out, or change the keys of "
                "the configuration that name a transformer."
            )
        return config

    def _refuse(self, name: str, value: Any, config: dict[str, Any]) -> None:
        alike = [key for key in Params(config).as_flat_dict() if key.endswith(f".{name}")]
        instead = f" Set {' or '.join(alike)} of its configuration." if alike else ""
        raise RecipeError(
            f"{name}={value!r} has no effect in {self.path}, which overrides this setting or does "
            f"not use it.{instead}"
        )

    def parsed(self, overrides: Mapping[str, Any] | str) -> Mapping[str, Any]:
        """Return overrides as an object; a string is evaluated as Jsonnet."""
        found = self._run(overrides) if isinstance(overrides, str) else overrides
        if not isinstance(found, Mapping):
            raise RecipeError(
                f"overrides are {type(found).__name__}, expected an object of keys, such as "
                '{"trainer.num_epochs": 3}.'
            )
        return found

    def _true(self, expression: str) -> bool:
        try:
            return self._run(expression)
        except RecipeError:
            return False

    def _run(self, expression: str) -> Any:
        from _jsonnet import evaluate_snippet

        place = json.dumps(str(self.path), ensure_ascii=False)
        snippet = f"local recipe = import {place}; {expression}"
        try:
            text = evaluate_snippet(
                "keys", snippet, ext_vars=self._variables, jpathdir=[str(recipes_folder().parent)]
            )
        except RuntimeError as error:
            default = default_transformer(self.path) if self._lacks_model(error) else None
            if default is not None:  # as `allennlp train` begins without the variable
                self._variables[TRANSFORMER] = default
                return self._run(expression)
            raise RecipeError(self._told(error)) from error
        return json.loads(text)

    def _lacks_model(self, error: RuntimeError) -> bool:
        return f"undefined external variable: {TRANSFORMER}" in str(error)

    def _told(self, error: RuntimeError) -> str:
        if self._lacks_model(error):
            return (
                f"{self.path} needs a transformer to begin with. Expected model=, a folder or a "
                f"name on the hub, or the environment variable {TRANSFORMER}."
            )
        first = str(error).strip().splitlines()[0].removeprefix("RUNTIME ERROR: ")
        return f"{self.path} could not be evaluated: {first}"


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
