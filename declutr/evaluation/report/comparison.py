"""Encoders side by side: what a report shows of their results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from declutr.evaluation.results import Record
from declutr.evaluation.scores import Interval, Score, difference

GROUPS = {
    "downstream": "Downstream tasks",
    "sts": "Semantic similarity",
    "probing": "Probing tasks",
    "retrieval": "Retrieval",
    "extra": "Other tasks",
    "geometry": "Geometry",
}
"""Titles of groups of tasks, in the order of the report."""

HIDDEN = ("map",)
"""Groups that are for pictures only."""


class Cell(NamedTuple):
    """A score of a task for an encoder."""

    value: float
    interval: Interval | None

    @property
    def half_width(self) -> float | None:
        return (self.interval.high - self.interval.low) / 2 if self.interval else None


class Difference(NamedTuple):
    """How much higher than the first encoder's a score is, and between what bounds."""

    value: float
    interval: Interval

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.interval.low > 0 or self.interval.high < 0


@dataclass
class Comparison:
    """Results of several encoders.

    # Parameters

    encoders : their names, in the order of the report; others are compared with the first.
    tasks : names of tasks, in the order of the report.
    records : by encoder, then by task; some may be absent.
    facts : what is known of an encoder, by its name.
    """

    encoders: Sequence[str]
    tasks: Sequence[str]
    records: Mapping[str, Mapping[str, Record]]
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def record(self, encoder: str, task: str) -> Record | None:
        return self.records.get(encoder, {}).get(task)

    def groups(self) -> dict[str, list[str]]:
        """Tasks with a score of some encoder, by group, in order."""
        found: dict[str, list[str]] = {group: [] for group in GROUPS}
        for task in self.tasks:
            scored = [r for r in self._of(task).values() if r.result.scores]
            if scored and scored[0].result.group not in HIDDEN:
                found.setdefault(scored[0].result.group, []).append(task)
        return {group: tasks for group, tasks in found.items() if tasks}

    def shown(self) -> list[str]:
        """Tasks with a score of some encoder, group by group."""
        return [task for tasks in self.groups().values() for task in tasks]

    def main_name(self, task: str) -> str:
        """The name of the score that stands for the task."""
        return next(iter(self._of(task).values())).result.main

    def score(self, encoder: str, task: str, name: str | None = None) -> Score | None:
        """A score, the main one by default, with its items; none if the encoder has none."""
        record = self.record(encoder, task)
        if record is None:
            return None
        if name is None:
            return record.main
        return next((score for score in record.result.scores if score.name == name), None)

    def cell(self, encoder: str, task: str, score: str | None = None) -> Cell | None:
        """A score, the main one by default; none if the encoder has none."""
        found = self.score(encoder, task, score)
        if found is None:
            return None
        return Cell(found.value, self.records[encoder][task].intervals.get(found.name))

    def value(self, encoder: str, task: str, score: str | None = None) -> float:
        """A score, the main one by default; not a number if the encoder has none."""
        found = self.score(encoder, task, score)
        return math.nan if found is None else found.value

    def score_names(self, task: str) -> list[str]:
        """The names of all scores of a task, in their order."""
        records = self._of(task).values()
        return list(dict.fromkeys(score.name for r in records for score in r.result.scores))

    def values(self, encoder: str) -> dict[str, dict[str, float]]:
        """Every score of an encoder that is a number: by task, then by name."""
        return {
            task: {
                score.name: score.value
                for score in record.result.scores
                if math.isfinite(score.value)
            }
            for task in self.tasks
            if (record := self.record(encoder, task)) and record.result.scores
        }

    def best(self, task: str, score: str | None = None) -> set[str]:
        """The encoders with the highest value, as it is printed; none of one alone."""
        values = {encoder: round(self.value(encoder, task, score), 2) for encoder in self.encoders}
        finite = {value for value in values.values() if math.isfinite(value)}
        if len(finite) < 2:
            return set()
        return {encoder for encoder, value in values.items() if value == max(finite)}

    def difference(self, encoder: str, task: str) -> Difference | None:
        """The main score less that of the first encoder, on the same drawn items.

        None if one of them has no score, or if the two are not of the same test items.
        """
        ours, first = (self.score(name, task) for name in (encoder, self.encoders[0]))
        if ours is None or first is None or not _same_items(ours, first):
            return None
        value = ours.value - first.value
        return Difference(value, difference(ours, first)) if math.isfinite(value) else None

    def differences(self, encoder: str) -> dict[str, Difference]:
        """By task, of those that have one, the main score less that of the first encoder."""
        found = {task: self.difference(encoder, task) for task in self.shown()}
        return {task: difference for task, difference in found.items() if difference is not None}

    def missing(self) -> dict[str, str]:
        """Tasks without data, and why."""
        return {
            task: found[0].result.error or ""
            for task in self.tasks
            if (found := list(self._of(task).values()))
            and found[0].result.group not in HIDDEN
            and all(record.result.missing for record in found)
        }

    def failures(self) -> list[tuple[str, str, str]]:
        """Encoder, task and error of what went wrong although there are data."""
        return [
            (encoder, task, record.result.error)
            for encoder in self.encoders
            for task in self.tasks
            if (record := self.record(encoder, task))
            and record.result.error is not None
            and not record.result.missing
        ]

    def notes(self) -> dict[str, dict[str, list[str]]]:
        """What was noted of a task: by task, then by note, of which encoders."""
        found: dict[str, dict[str, list[str]]] = {}
        for task in self.tasks:
            for encoder, record in self._of(task).items():
                for note in record.result.notes:
                    found.setdefault(task, {}).setdefault(note, []).append(encoder)
        return found

    def _of(self, task: str) -> dict[str, Record]:
        return {name: r for name in self.encoders if (r := self.record(name, task))}


def _same_items(ours: Score, theirs: Score) -> bool:
    """Whether two scores are one statistic of the same test items, as far as items tell."""
    kinds = {(score.name, score.statistic, frozenset(score.items)) for score in (ours, theirs)}
    if len(kinds) > 1:
        return False
    lengths = {len(array) for score in (ours, theirs) for array in score.items.values()}
    return len(lengths) == 1 and all(
        np.array_equal(ours.items[name], theirs.items[name])
        for name in ("gold", "subset")  # what does not depend on the encoder
        if name in ours.items
    )
