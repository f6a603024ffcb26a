"""Checks that keys are in the configuration of a recipe, or may be added to it."""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from allennlp.commands.train import TrainModel
from allennlp.common.checks import ConfigurationError
from allennlp.common.from_params import infer_constructor_params
from allennlp.data import DataLoader, DatasetReader
from allennlp.models import Model
from allennlp.training import Trainer

import declutr.plugin  # noqa: F401 - registers the names that recipes use

# Keys that `allennlp train` takes out before it builds a `TrainModel`, and its arguments that do
# not come from a configuration.
_TAKEN_BEFORE = {
    *("distributed", "evaluation", "include_in_archive"),
    *("random_seed", "numpy_seed", "pytorch_seed"),
}
_MISSPELT = 0.9  # the similarity from which one key is taken for another, misspelt one
_NOT_KEYS = {"serialization_dir", "local_rank", "ddp_accelerator"}
_CLASSES: dict[str, type] = {
    "model": Model,
    "trainer": Trainer,
    "dataset_reader": DatasetReader,
    "validation_dataset_reader": DatasetReader,
    "data_loader": DataLoader,
    "validation_data_loader": DataLoader,
}


class RecipeError(ConfigurationError):
    """Error of a recipe that cannot be evaluated, or of a key that it does not have."""


def require_known(
    others: Mapping[str, Any], config: dict[str, Any], settings: list[str], path: Path
) -> None:
    """Raise if a key is neither in the configuration nor one that AllenNLP may take there.

    # Parameters

    others : the keys, with dots between those of nested objects, and their new values.
    config, path : the configuration, and the recipe that it comes from.
    settings : the names of the settings of the recipe, for the message.

    # Raises

    `RecipeError` : a key is unknown; the message names those nearest to it.
    """
    for key in others:
        parent: Any = config
        parts = key.split(".")
        for depth, part in enumerate(parts):
            where = ".".join(parts[:depth])
            known, certain = _keys_in(parent, where)
            if part not in known:
                # Not all classes tell which keys they take, so that only misspelt ones are found.
                near = difflib.get_close_matches(part, known, n=3, cutoff=_MISSPELT)
                if certain or near or depth + 1 < len(parts):
                    raise RecipeError(_unknown(key, part, where, known, settings, path))
                break
            parent = parent[int(part)] if isinstance(parent, list) else parent.get(part)


def _keys_in(parent: Any, where: str) -> tuple[set[str], bool]:
    """Return the keys of a part of the configuration, and whether there can be no others."""
    if isinstance(parent, list):
        return {str(number) for number in range(len(parent))}, True
    if not isinstance(parent, dict):
        raise RecipeError(
            f"There are no keys in '{where}', which is {json.dumps(parent)}. Set the whole of it."
        )
    if not where:
        return _top_level_keys() | parent.keys(), True
    if where not in _CLASSES:
        return set(parent), False
    base: Any = _CLASSES[where]
    name = parent.get("type") or base.default_implementation
    cls, constructor = base.resolve_class_name(name)
    taken = infer_constructor_params(cls, getattr(cls, constructor or "__init__"))
    open_ended = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values())
    return {*parent, *taken, "type"}, not open_ended


def _top_level_keys() -> set[str]:
    return set(inspect.signature(TrainModel.from_partial_objects).parameters) - _NOT_KEYS | (
        _TAKEN_BEFORE
    )


def _unknown(
    key: str, part: str, prefix: str, known: Iterable[str], settings: list[str], path: Path
) -> str:
    choices = [*known] if prefix else [*settings, *known]
    near = difflib.get_close_matches(part, choices, n=3) or sorted(choices)[:12]
    where = f"{prefix}." if prefix else ""
    return (
        f"{path} has no key {key!r}. Expected a setting of the recipe or a key of its "
        f"configuration; the nearest: {', '.join(where + name for name in near)}."
    )
