"""The whole check of a recipe: settings, what is wrong, data, steps and memory."""

from __future__ import annotations

import math
import os
import textwrap
from dataclasses import dataclass, field
from typing import Any

from allennlp.common.checks import ConfigurationError
from allennlp.training.learning_rate_schedulers import LearningRateScheduler

import declutr.components  # noqa: F401 - registers the names that recipes use
from declutr.bridge.configurations import idle_seeds, without_port
from declutr.corpus import SourceError
from declutr.models.declutr import DeCLUTR
from declutr.runs.check import advice
from declutr.runs.check.batches import Rates, learning_rates
from declutr.runs.check.configuration import (
    OF_DATA,
    OVERRIDES,
    configuration,
    first_line,
    with_types,
)
from declutr.runs.check.data import DataFigures, DataRead, read_data
from declutr.runs.check.findings import Finding, Setting
from declutr.runs.check.idle_settings import idle_settings
from declutr.runs.check.memory import (
    Device,
    MemoryFigures,
    device_of_run,
    memory_figures,
    model_without_contents,
    optimizer_of,
)
from declutr.runs.check.settings import walk_through
from declutr.runs.check.sources import RecipeSources
from declutr.runs.check.trainer import build_trainer
from declutr.runs.first_tables import use_first_table

_NUMBERS = {"num_epochs": 20, "num_gradient_accumulation_steps": 1}  # of AllenNLP's trainer


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
    """The settings, findings and figures of one check of a recipe.

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
    config, sources, changes, findings = configuration(recipe, overrides)
    if with_data and config.get("train_data_path"):
        use_first_table(config)
    walk = walk_through(config)
    settings = [
        SourcedSetting(one.path, one.value, _source(one.path, one.default_of, sources, changes))
        for one in walk.settings
    ]
    config = with_types(config)
    unused = "validation_data_loader" if not _of_paths(config) else "-"
    passed = [one for one in walk.findings if one.path.split(".")[0] == unused]
    wrong = [one for one in walk.findings if one not in passed]
    report = Report(str(sources.path), settings, findings + wrong)
    report.warnings += advice.of_settings(config, walk.settings, output)
    report.warnings += [told] if (told := idle_seeds(config)) else []
    report.warnings += [
        f"{one.path}: {one.message} Nothing is read by it, for there is no validation data."
        for one in passed
    ]
    trained = (config.get("trainer") or {}).get("type") != "no_op"
    if trained and "train_data_path" in config and not config["train_data_path"]:
        wanted = 'after the recipe, or by -o \'{"train_data_path": "..."}\''
        told = f"There is no training data. Name it {wanted}."
        report.findings.append(Finding("train_data_path", told))
    if trained:
        report.warnings += idle_settings(walk.settings, bool(config.get("validation_data_path")))
    report.findings += _of_schedule(config)
    if portless := without_port(config.get("distributed") or {}):
        report.findings.append(Finding("distributed.primary_port", portless))
    try:
        report.device = device_of_run(config)
    except ConfigurationError as error:
        key = "distributed.cuda_devices" if config.get("distributed") else "trainer.cuda_device"
        report.findings.append(Finding(key, str(error)))
    if with_data and trained:
        _add_figures(report, config, walk.settings)
    elif not trained:
        report.notes.append("Nothing is trained, and no data is read: the trainer is no_op.")
    return report


def _source(path: str, default_of: str | None, sources: RecipeSources, changes: Any) -> str:
    if default_of is not None:
        return f"default of {default_of}"
    changed = any(path == key or path.startswith(f"{key}.") for key in changes)
    return OVERRIDES if changed else sources.of(path)


def _add_figures(report: Report, config: dict[str, Any], settings: list[Setting]) -> None:
    wrong = {finding.path.partition(".")[0] for finding in report.findings}
    if wrong & {*OF_DATA, "train_data_path", "vocabulary"} or report.device is None:
        report.notes.append("The data was not read: what is wrong comes first.")
        return
    device = report.device
    read = _data(report, config, "train")
    validation = None
    if config.get("validation_data_path") is not None:
        validation = _data(report, config, "validation")
        report.validation_data = None if validation is None else validation.figures
    if read is None:
        return
    report.data = read.figures
    model = None
    if not wrong & {"model", "trainer"} and read.vocabulary is not None:
        loaders = [read.loader, None if validation is None else validation.loader]
        model = _add_memory(report, config, settings, read, loaders)
    trainer = config.get("trainer") or {}
    epochs, every = (trainer.get(key, default) for key, default in _NUMBERS.items())
    if not all(isinstance(number, int) and number > 0 for number in (epochs, every)):
        return
    report.epochs = epochs
    report.steps = math.ceil(read.figures.batches / every)
    report.rates = learning_rates(trainer, report.steps, report.epochs)
    report.warnings += advice.of_data(config, read.figures, model, device)
    report.warnings += advice.of_steps(report.steps * report.epochs)


def _data(report: Report, config: dict[str, Any], part: str) -> DataRead | None:
    assert report.device is not None
    path = f"{part}_data_path"
    try:
        read = read_data(config, part, report.device.processes)
    except (ConfigurationError, SourceError, OSError, ValueError) as error:
        report.findings.append(Finding(path, str(error)))
        return None
    if read.figures.problem:
        report.findings.append(Finding(path, read.figures.problem))
    return read


def _add_memory(
    report: Report,
    config: dict[str, Any],
    settings: list[Setting],
    read: DataRead,
    loaders: list[Any],
) -> Any:
    """Build model and trainer, add the memory of a step to the report, and return the model."""
    assert report.device is not None and read.vocabulary is not None
    try:
        model = model_without_contents(config, settings, read.vocabulary)
    except (ConfigurationError, OSError, ValueError) as error:
        report.findings.append(Finding("model", first_line(error)))
        return None
    except Exception as error:  # of a part of any kind, such as an AttributeError
        if _has_failed(error):
            report.findings.append(Finding("model", _short(error)))
        else:
            report.notes.append(f"The model cannot be built for this check ({_short(error)}).")
        return None
    try:
        if isinstance(model, DeCLUTR):
            model.require_data(read.loader)
    except ConfigurationError as error:
        report.findings.append(Finding("train_data_path", str(error)))
        return model
    optimizer = None
    trained = [one for one in model.parameters() if one.requires_grad]
    try:
        optimizer = optimizer_of(config, model)
        for one in trained:  # or else patterns that froze any match nothing in the trainer
            one.requires_grad_(True)
        _add_trainer(report, config, model, loaders)  # first: models may ask it for what they need
        if config["trainer"].get("no_grad"):  # which the trainer has frozen
            optimizer = optimizer_of(config, model)
        report.memory = memory_figures(config, model, optimizer, read.largest, report.device)
    except Exception as error:  # a model of any kind may look at what has no content
        if optimizer is None and isinstance(error, (ConfigurationError, TypeError, ValueError)):
            report.findings.append(Finding("trainer.optimizer", first_line(error)))
        else:
            failed = "A step with the largest batch failed, and may in training"
            unknown = "The memory of a step cannot be estimated for this model"
            _tell_of(error, report, failed, unknown)
        return model
    report.warnings += advice.of_memory(config, report.memory, report.device)
    if isinstance(model, DeCLUTR) and config.get("validation_data_path"):
        report.warnings += advice.of_metrics(config, model.record.training.names)
    return model


def _add_trainer(report: Report, config: dict[str, Any], model: Any, loaders: list[Any]) -> None:
    """Add what the trainer refuses and warns of, unless its data are wrong already."""
    assert report.device is not None
    if any(finding.path.endswith("_data_path") for finding in report.findings):
        return
    try:
        report.warnings += build_trainer(config, model, loaders, report.device)
    except (ConfigurationError, ValueError) as error:
        report.findings.append(Finding("trainer", first_line(error)))
    except Exception as error:  # a part of any kind may look at what has no content
        failed = "The trainer could not be built, and may not in training"
        _tell_of(error, report, failed, "The trainer cannot be built for this check")


def _tell_of(error: Exception, report: Report, failed: str, unknown: str) -> None:
    """Add a warning of what failed by itself, or a note on what this check cannot do."""
    if _has_failed(error):
        report.warnings.append(f"{failed}: {_short(error)}")
    else:
        report.notes.append(f"{unknown} ({_short(error)}).")


def _short(error: Exception) -> str:
    return textwrap.shorten(f"{type(error).__name__}: {first_line(error)}", 150)


def _has_failed(error: Exception) -> bool:
    """Return whether a part failed by itself, and not because its tensors have no contents."""
    told = str(error)  # recurrent layers pack texts by lengths, of which there are none here
    return not (isinstance(error, NotImplementedError) or "meta" in told or "Cannot pack" in told)


def _of_paths(config: dict[str, Any]) -> list[str]:
    """Return the data that `validation_data_loader` reads."""
    paths = (config.get(f"{part}_data_path") for part in ("validation", "test"))
    return [path for path in paths if path]


def _of_schedule(config: dict[str, Any]) -> list[Finding]:
    """Return what is wrong with the epochs, the metric, and a schedule by validation data."""
    trainer = config.get("trainer") or {}
    metric = trainer.get("validation_metric", "-loss")
    for key in _NUMBERS:
        number = trainer.get(key, 1)
        if isinstance(number, int) and number < 1:
            return [Finding(f"trainer.{key}", f"Expected 1 or more, got {number}.")]
    names = metric if isinstance(metric, list) else [metric]
    if not all(isinstance(one, str) and one.startswith(("+", "-")) for one in names):
        told = f"Expected + (higher is better) or - before the name of a metric, got {metric!r}."
        return [Finding("trainer.validation_metric", told)]
    name = (trainer.get("learning_rate_scheduler") or {}).get("type")
    if config.get("validation_data_path") or name not in LearningRateScheduler.list_available():
        return []
    if not getattr(LearningRateScheduler.by_name(name), "needs_validation", False):
        return []
    told = f"There is no validation data, and the schedule '{name}' looks at it in every epoch."
    return [Finding("validation_data_path", told)]
