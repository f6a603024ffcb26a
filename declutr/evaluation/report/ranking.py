"""Encoders in the order of a score, an average or a mean of tasks."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from declutr.evaluation.report.averages import DEFINITIONS, Definition
from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.quoted import Quoted
from declutr.evaluation.report.tables import Entry, entry
from declutr.system.nearest import did_you_mean


class UnknownRanking(ValueError):
    """Error raised when encoders cannot be ordered by what was asked for."""


class Ranked(NamedTuple):
    """An encoder in a ranking, or a row of a paper's table."""

    name: str
    label: str
    entry: Entry
    quoted: bool


class Ranking(NamedTuple):
    """Encoders from the best to the worst, with those that lack the score."""

    name: str
    rows: Sequence[Ranked]
    lacking: Sequence[str]


def definition_of(comparison: Comparison, by: str) -> Definition:
    """Return what encoders are ordered by.

    # Parameters

    comparison : the results.
    by : the name of an average, a task (its main score), or a task and a score, `STS-B/cosine
        Spearman`. Empty: `SimCSE STS` or another average, if all encoders have it; otherwise the
        mean of the main scores of the tasks that all have.

    # Raises

    `UnknownRanking` : there is no such thing, or no task that all encoders have, or it is geometry,
        of which more is not better.
    """
    averages = {definition.name.casefold(): definition for definition in DEFINITIONS}
    if by.casefold() in averages:
        return averages[by.casefold()]
    task, _, score = by.partition("/")
    geometry = comparison.groups().get("geometry", [])
    if task in geometry:
        raise UnknownRanking(
            f"Encoders have no order by {task}: of alignment and uniformity less is better, and of "
            "its other scores neither less nor more. Expected another task, or an average."
        )
    if by and task in comparison.shown():
        if score and score not in comparison.score_names(task):
            names = ", ".join(comparison.score_names(task))
            raise UnknownRanking(f"{task} has no score {score!r}, expected one of {names}.")
        return Definition(by, ({task: score or comparison.main_name(task)},))
    if by:
        own = [task for task in comparison.shown() if task not in geometry]
        printed = [definition.name for definition in DEFINITIONS]
        hint = did_you_mean(by, [*own, *printed])
        raise UnknownRanking(
            f"There is no average or task {by!r}.{hint} Expected a task ({', '.join(own)}), a task "
            f"and its score (as {own[0] if own else 'STS-B'}/SCORE), or an average: "
            f"{'; '.join(printed)}."
        )
    for definition in DEFINITIONS:
        if all(math.isfinite(_value(comparison, e, definition)) for e in comparison.encoders):
            return definition
    tasks = [
        task
        for task in comparison.shown()
        if task not in geometry
        and all(math.isfinite(comparison.value(e, task)) for e in comparison.encoders)
    ]
    if not tasks:
        raise UnknownRanking("There is no task that all encoders have; --by TASK names one.")
    name = f"mean of the {len(tasks)} tasks that all have" if len(tasks) > 1 else tasks[0]
    return Definition(name, ({task: comparison.main_name(task) for task in tasks},))


def ranking(
    comparison: Comparison,
    contestants: Mapping[str, Sequence[str]],
    quoted: Sequence[Quoted],
    definition: Definition,
) -> Ranking:
    """Order encoders by the mean over their seeds; rows of papers stand between them."""
    rows = []
    for name, group in contestants.items():
        seeds = f"{name} ({len(group)} seeds)" if len(group) > 1 else name
        values = [_value(comparison, encoder, definition) for encoder in group]
        rows.append(Ranked(name, seeds, entry(values), quoted=False))
    for row in quoted:
        value = row.averages.get(definition.name, math.nan)
        if len(definition.members) == 1:
            ((task, score),) = definition.members.items()
            value = row.scores.get(task, {}).get(score, math.nan)
        if math.isfinite(value):
            rows.append(Ranked(row.label, row.label, Entry(value), quoted=True))
    finite = [row for row in rows if math.isfinite(row.entry.value)]
    lacking = [row.label for row in rows if not math.isfinite(row.entry.value)]
    return Ranking(definition.name, sorted(finite, key=lambda row: -row.entry.value), lacking)


def _value(comparison: Comparison, encoder: str, definition: Definition) -> float:
    value = definition.of(comparison.values(encoder)).value
    return math.nan if value is None else value
