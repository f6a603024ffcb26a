"""The whole check of a recipe: what it sets, what is wrong, what it will read, and what it takes."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allennlp.common.checks import ConfigurationError
from allennlp.common.file_utils import cached_path
from allennlp.common.params import (
    _environment_variables,
    _replace_none,
    parse_overrides,
    with_overrides,
)

import declutr.plugin  # noqa: F401 - registers the names that recipes use
from declutr.corpus import SourceError
from declutr.recipes import recipe_path
from declutr.runs.check import advice
from declutr.runs.check.batches import Rates, learning_rates
from declutr.runs.check.data import DataFigures, DataRead, read_data
from declutr.runs.check.memory import (
    Device,
    MemoryFigures,
    device_of_run,
    memory_figures,
    model_without_contents,
)
from declutr.runs.check.settings import Finding, walk_through
from declutr.runs.check.sources import RecipeSources
from declutr.runs.known_keys import RecipeError
from declutr.system.nearest import did_you_mean, listed

OVERRIDES = "-o"
_OF_DATA = ("dataset_reader", "validation_dataset_reader", "data_loader", "validation_data_loader")


@dataclass(frozen=True)
class SourcedSetting:
    """An effective setting, and where it is from.

    # Parameters

    path, value : as of `Setting`.
    source : `"declutr.jsonnet:5"`, `"-o"`, `"variable TRANSFORMER_MODEL"`, `"default of NTXent"`.
    """

    path: str
    value: Any
    source: str


@dataclass
class Report:
    """What the check of a recipe found.

    # Parameters

    recipe : the path of the recipe.
    settings : all effective settings.
    findings : what is wrong: training would stop at it.
    warnings : what is probably not meant.
    data, validation_data : what will be read; `None` if that was not looked at.
    device : the device that would be trained on.
    epochs, steps : the number of epochs, and of steps of an epoch.
    rates : the learning rates; `None` if they are unknown.
    memory : the memory of a step.
    notes : what could not be found out, and why.
    """

    recipe: str
    settings: list[SourcedSetting]
    findings: list[Finding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    data: DataFigures | None = None
    validation_data: DataFigures | None = None
    device: Device | None = None
    epochs: int = 0
    steps: int = 0
    rates: Rates | None = None
    memory: MemoryFigures | None = None
    notes: list[str] = field(default_factory=list)


def check_recipe(
    recipe: str | os.PathLike,
    overrides: str = "",
    output: str | os.PathLike | None = None,
    with_data: bool = True,
) -> Report:
    """Check a recipe without training: nothing is written but the cache of tokenised corpora.

    # Parameters

    recipe : the path of a recipe, or a name that `declutr.recipes.recipe_path` knows.
    overrides : what `allennlp train -o` would be given.
    output : the serialization directory of the run, to be told if it is taken.
    with_data : whether to read the data, and to estimate memory.

    # Raises

    `RecipeError` : the recipe or the overrides cannot be evaluated.
    """
    config, sources, changes, findings = _configuration(recipe, overrides)
    walk = walk_through(config)
    settings = [
        SourcedSetting(one.path, one.value, _source(one.path, one.default_of, sources, changes))
        for one in walk.settings
    ]
    report = Report(str(sources.path), settings, findings + walk.findings)
    report.warnings += advice.of_settings(config, walk.settings, output)
    trained = (config.get("trainer") or {}).get("type") != "no_op"
    if trained and "train_data_path" in config and not config["train_data_path"]:
        wanted = '-o \'{"train_data_path": "..."}\''
        report.findings.append(
            Finding("train_data_path", f"There is no training data. Name it: {wanted}.")
        )
    try:
        report.device = device_of_run(config)
    except ConfigurationError as error:
        report.findings.append(Finding("trainer.cuda_device", str(error)))
    if with_data and trained:
        _add_figures(report, config, walk.settings)
    elif not trained:
        report.notes.append("Nothing is trained, and no data is read: the trainer is no_op.")
    return report


def _configuration(
    recipe: str | os.PathLike, overrides: str
) -> tuple[dict[str, Any], RecipeSources, dict[str, Any], list[Finding]]:
    """Return the configuration, the sources of the recipe, the changes, and those that fail."""
    try:
        file = recipe_path(os.fspath(recipe))
        variables = _environment_variables()
        sources = RecipeSources(cached_path(file), variables)
    except (RuntimeError, ValueError) as error:  # Jsonnet's, and names that are unknown
        raise RecipeError(_of_jsonnet(error)) from error
    try:
        changes = parse_overrides(overrides)
    except (RuntimeError, ValueError) as error:
        raise RecipeError(f"{OVERRIDES} cannot be read: {_of_jsonnet(error)}") from error
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


def _of_jsonnet(error: Exception) -> str:
    """Return the message of an error of Jsonnet with its place, and what to do."""
    told = _first_line(error).removeprefix("RUNTIME ERROR: ")
    _, found, name = told.partition("undefined external variable: ")
    if found:
        return f"{told}. Set the environment variable {name.split()[0]}."
    return told


def _first_line(error: Exception) -> str:
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


def _source(path: str, default_of: str | None, sources: RecipeSources, changes: Any) -> str:
    if default_of is not None:
        return f"default of {default_of}"
    changed = any(path == key or path.startswith(f"{key}.") for key in changes)
    return OVERRIDES if changed else sources.of(path)


def _add_figures(report: Report, config: dict[str, Any], settings: list[Any]) -> None:
    wrong = {finding.path.partition(".")[0] for finding in report.findings}
    if wrong & {*_OF_DATA, "train_data_path", "vocabulary"} or report.device is None:
        report.notes.append("The data was not read: what is wrong comes first.")
        return
    device = report.device
    read = _data(report, config, "train")
    if config.get("validation_data_path"):
        validation = _data(report, config, "validation")
        report.validation_data = validation and validation.figures
    if read is None:
        return
    report.data = read.figures
    model = None
    if not wrong & {"model", "trainer"} and read.vocabulary is not None:
        model = _add_memory(report, config, settings, read)
    trainer = config.get("trainer") or {}
    report.epochs = trainer.get("num_epochs", 20)
    every = trainer.get("num_gradient_accumulation_steps", 1)
    report.steps = math.ceil(read.figures.batches / every)
    report.rates = learning_rates(trainer, report.steps, report.epochs)
    report.warnings += advice.of_data(config, read.figures, model, device)
    report.warnings += advice.of_steps(report.steps * report.epochs)


def _data(report: Report, config: dict[str, Any], part: str) -> DataRead | None:
    assert report.device is not None
    path = f"{part}_data_path"
    try:
        read = read_data(config, part, report.device.processes)
    except (ConfigurationError, SourceError, OSError) as error:
        report.findings.append(Finding(path, str(error)))
        return None
    if read.figures.problem:
        report.findings.append(Finding(path, read.figures.problem))
    return read


def _add_memory(
    report: Report, config: dict[str, Any], settings: list[Any], read: DataRead
) -> Any:
    """Build the model, add the memory of a step to the report, and return the model."""
    assert report.device is not None and read.vocabulary is not None
    try:
        model = model_without_contents(config, settings, read.vocabulary)
    except (ConfigurationError, OSError, ValueError) as error:
        report.findings.append(Finding("model", _first_line(error)))
        return None
    try:
        report.memory = memory_figures(config, model, read.largest, report.device)
    except Exception as error:  # a model of any kind may look at what has no content
        told = textwrap.shorten(f"{type(error).__name__}: {_first_line(error)}", 150)
        report.notes.append(f"The memory of a step cannot be estimated for this model ({told}).")
        return model
    report.warnings += advice.of_memory(config, report.memory, report.device)
    return model
