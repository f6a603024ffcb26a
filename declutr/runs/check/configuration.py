"""The configuration of a recipe with overrides, of which those that fail are findings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from allennlp.common.file_utils import cached_path
from allennlp.common.params import (
    _environment_variables,
    _replace_none,
    parse_overrides,
    with_overrides,
)

from declutr.recipes import recipe_path
from declutr.runs.check.findings import Finding
from declutr.runs.check.sources import RecipeSources
from declutr.runs.known_keys import RecipeError
from declutr.system.nearest import did_you_mean, listed

OVERRIDES = "-o"
OF_DATA = ("dataset_reader", "validation_dataset_reader", "data_loader", "validation_data_loader")
_PARTS = (*OF_DATA, "vocabulary", "model", "trainer")
_PARTS_OF_TRAINER = ("optimizer", "learning_rate_scheduler", "momentum_scheduler", "checkpointer")


def configuration(
    recipe: str | os.PathLike, overrides: str
) -> tuple[dict[str, Any], RecipeSources, dict[str, Any], list[Finding]]:
    """Return the configuration, the sources of the recipe, the changes, and those that fail.

    # Raises

    `RecipeError` : the recipe or the overrides cannot be evaluated.
    """
    try:
        file = recipe_path(os.fspath(recipe))
        variables = _environment_variables()
        sources = RecipeSources(cached_path(file), variables)
    except (RuntimeError, ValueError) as error:  # Jsonnet's, and names that are unknown
        raise RecipeError(first_line(error)) from error
    try:
        changes = parse_overrides(overrides)
    except (RuntimeError, ValueError) as error:
        told, which = first_line(error), f"The overrides {overrides!r} cannot be evaluated: "
        raise RecipeError(told if told.startswith(which) else which + told) from error
    if not isinstance(changes, dict) or not isinstance(sources.plain, dict):
        raise RecipeError(
            f"Expected an object of keys for {OVERRIDES} and in {file}, such as "
            '{"trainer.num_epochs": 3}.'
        )
    config, findings = dict(sources.plain), []
    for key, value in changes.items():
        try:
            config = with_overrides(config, {key: value})
        except (ValueError, TypeError):
            findings.append(Finding(key, _nothing_to_change(key, config)))
    return _replace_none(config), sources, changes, findings


def with_types(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration in which parts that are their type alone are objects with a type.

    AllenNLP takes `"optimizer": "adam"` for `"optimizer": {"type": "adam"}`.
    """

    def spelt(parts: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
        named = {name: parts[name] for name in names if isinstance(parts.get(name), str)}
        return {**parts, **{name: {"type": kind} for name, kind in named.items()}}

    found = spelt(config, _PARTS)
    if isinstance(found.get("trainer"), dict):
        found["trainer"] = spelt(found["trainer"], _PARTS_OF_TRAINER)
    return found


def first_line(error: Exception) -> str:
    """Return the first lines of the message of an error as one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(line.strip() for line in lines[:2])


def _nothing_to_change(key: str, config: Any) -> str:
    """Say which part of the key of an override the recipe does not have."""
    where: list[str] = []
    part = config
    for name in key.split("."):
        keys = [str(one) for one in (part if isinstance(part, Mapping) else range(_length(part)))]
        if name not in keys:
            place = ".".join(where) or "the recipe"
            has = f"It has {listed(keys)}." if keys else "It has no keys: set the whole of it."
            return f"{place} has no '{name}' to change.{did_you_mean(name, keys)} {has}"
        part = part[name] if isinstance(part, Mapping) else part[int(name)]
        where.append(name)
    return "This key cannot be changed."


def _length(part: Any) -> int:
    return len(part) if isinstance(part, list) else 0
