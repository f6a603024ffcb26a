"""Evaluation of recipes: by name, and with their own transformer where none is chosen."""

from __future__ import annotations

import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from declutr.bridge.configurations import TRANSFORMER
from declutr.bridge.names import own_first
from declutr.bridge.own_names import spelt
from declutr.bridge.registry import any_taken
from declutr.deprecations import Deprecated
from declutr.recipes import FOLDER, moved_to, recipe_path, recipes_folder
from declutr.recipes.copies import imported_files

_UNDEFINED = re.compile(r"undefined external variable: (.+)")
_logger = logging.getLogger(__name__)
_told: dict[Any, Any] = {}  # warnings of this process


class RecipeError(RuntimeError):
    """Error of a recipe, or of changes to it, that Jsonnet cannot evaluate."""


class UndefinedVariable(RecipeError):
    """Error of a recipe that takes a variable which is not set."""


def named_recipe(place: os.PathLike | str, missing: OSError) -> str:
    """Return the path of the recipe of this package whose name was given where no file is.

    # Parameters

    place : what the user gave.
    missing : the error to raise where no recipe can be meant: nothing is there, or a folder.

    # Raises

    `UnknownRecipe` : no recipe has this name.
    `OSError` : `missing`, for a URL or a JSON file.
    """
    if os.fspath(place).endswith(".json") or "://" in os.fspath(place):
        raise missing  # of a trained model, or elsewhere: no recipe of this package was meant
    return str(recipe_path(place))


def evaluated(evaluate: Callable[..., str], file: str, ext_vars: Mapping[str, str]) -> str:
    """Evaluate a Jsonnet file, and return its JSON.

    A recipe that takes `TRANSFORMER_MODEL` where it is not set gets its own `default_transformer`.
    What is imported from `training_config/` and is not beside the file is that of this package.
    Paths of release 1.9 give one `FutureWarning` each, at the file that imports them.

    # Raises

    `UndefinedVariable` : the recipe takes another variable that is not set, or it has no default.
    `RecipeError` : Jsonnet cannot evaluate it for another reason.
    """
    _warn_of_earlier_paths(file)
    folder = recipes_folder()
    try:
        text = evaluate(file, ext_vars=dict(ext_vars), jpathdir=[str(folder.parent)])
        return _spelt(text) if Path(file).resolve().is_relative_to(folder.resolve()) else text
    except RuntimeError as error:
        undefined = _UNDEFINED.search(str(error))
        if undefined is None:
            raise RecipeError(f"'{file}' cannot be evaluated: {_in_a_line(error)}") from error
    name = undefined[1].strip()
    default = default_transformer(file) if name == TRANSFORMER else None
    if default is None:
        raise UndefinedVariable(
            f"The recipe '{file}' takes the variable {name}, which is not set. Set it in the "
            f"environment, before the command: {name}=... declutr train ..."
        )
    _logger.info("%s is not set: '%s' starts from %s", TRANSFORMER, file, default)
    return evaluated(evaluate, file, {**ext_vars, TRANSFORMER: default})


def _spelt(text: str) -> str:
    """Return a recipe of this package, with names that no other package can have taken."""
    if not any_taken():
        return text
    with own_first():
        return json.dumps(spelt(json.loads(text)))


def error_of_overrides(text: str, error: RuntimeError) -> RecipeError:
    """Return the error of changes to a recipe, as `-o` takes them, that Jsonnet refuses."""
    advice = """Expected JSON, such as -o '{"trainer.num_epochs": 3}'."""
    if undefined := _UNDEFINED.search(str(error)):
        advice = f"Set the environment variable {undefined[1].strip()}."
    return RecipeError(f"The overrides {text!r} cannot be evaluated: {_in_a_line(error)}. {advice}")


def _warn_of_earlier_paths(file: str) -> None:
    top = recipes_folder().resolve().parent
    for imported, importer in imported_files(Path(file)).items():
        if target := moved_to(imported):
            old = imported.relative_to(top) if imported.is_relative_to(top) else imported
            message = str(Deprecated(old.as_posix(), f"{FOLDER}/{target}"))
            warnings.warn_explicit(message, FutureWarning, str(importer), 1, registry=_told)


def _in_a_line(error: RuntimeError) -> str:
    """Return the message of an error of Jsonnet, with the first place of its trace."""
    message, *trace = [line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()]
    place = trace[0].split("\t")[0] if trace else ""
    return f"{message} ({place})" if place.partition(":")[2] else message


def default_transformer(file: str | os.PathLike) -> str | None:
    """Return what a recipe has as `default_transformer`, which may be hidden; `None` without it."""
    from _jsonnet import evaluate_snippet

    path = [str(recipes_folder().parent)]
    snippet = f"(import {json.dumps(os.path.abspath(file))}).default_transformer"
    try:
        return json.loads(evaluate_snippet("default_transformer", snippet, jpathdir=path))
    except RuntimeError:
        return None
