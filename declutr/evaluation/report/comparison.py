"""The comparison of encoders that a report shows."""

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from declutr.evaluation.bootstrap import (
    RESAMPLES,
    Interval,
    percentiles,
    resampled,
    same_items,
)
from declutr.evaluation.results import Record
from declutr.evaluation.scores import Score

GROUPS = {
    "downstream": "Downstream tasks",
    "sts": "Semantic similarity",
    "probing": "Probing tasks",
    "retrieval": "Retrieval",
    "reranking": "Reranking",
    "extra": "Other tasks",
    "pairs": "Pair classification",
    "bitext-mining": "Bitext mining",
    "summarisation": "Summarisation",
    "clustering": "Clustering",
    "few-shot": "Few-shot classification",
    "knn": "Classification by nearest neighbours",
    "geometry": "Geometry",
}
"""Titles of the groups of tasks, in the order of the report."""

HIDDEN = ("map",)
"""Groups of tasks that only pictures show."""

UNTESTED = ("geometry", "clustering")
"""Groups whose differences are not tested: higher geometry is not better, and the items of
clustering are draws of the same texts, whose differences say nothing of other texts."""

WITHOUT_AVERAGE = (
    *("retrieval", "reranking", "extra", "pairs", "bitext-mining", "summarisation"),
    *("clustering", "few-shot", "knn"),
)
"""Groups of tasks that no average of a paper has; a report gives the mean of each."""


class Cell(NamedTuple):
    """The value of a score for an encoder, with its interval if it has one."""

    value: float
    interval: Interval | None

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval; None without an interval."""
        return (self.interval.high - self.interval.low) / 2 if self.interval else None


class Difference(NamedTuple):
    """The difference of a score from that of the first encoder, with its interval if wanted."""

    value: float
    interval: Interval | None

    @property
    def certain(self) -> bool:
        """Whether there is an interval, and it excludes zero."""
        return self.interval is not None and (self.interval.low > 0 or self.interval.high < 0)


def highest(values: Sequence[float]) -> set[int]:
    """Return the places of the highest value after rounding to two decimals.

    There is none if all values that are finite are equal, or there is only one.
    """
    rounded = [round(value, 2) for value in values]
    finite = {value for value in rounded if math.isfinite(value)}
    return {n for n, value in enumerate(rounded) if len(finite) > 1 and value == max(finite)}


@dataclass
class Comparison:
    """The results of several encoders, of which the first is the reference for differences.

    # Parameters

    encoders : names of encoders, in the order of the report.
    tasks : names of tasks, in the order of the report.
    records : results by encoder, then by task; some may be absent.
    facts : what is known about each encoder, by its name.
    resamples : the number of bootstrap samples of the intervals of differences; 0 for none.
    """

    encoders: Sequence[str]
    tasks: Sequence[str]
    records: Mapping[str, Mapping[str, Record]]
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    resamples: int = RESAMPLES
    _drawn: dict[tuple[str, str, str], np.ndarray] = field(default_factory=dict, repr=False)

    def description(self, encoder: str) -> Mapping[str, Any]:
        """Return what an encoder says of itself, such as its fingerprint; empty if unknown."""
        return self.facts.get(encoder, {}).get("description", {})

    def record(self, encoder: str, task: str) -> Record | None:
        """Return the result of an encoder on a task; None if there is none."""
        return self.records.get(encoder, {}).get(task)

    def groups(self) -> dict[str, list[str]]:
        """Return the tasks for which some encoder has a score, by group in the report's order."""
        found: dict[str, list[str]] = {group: [] for group in GROUPS}
        for task in self.tasks:
            scored = [r for r in self._of(task).values() if r.result.scores]
            if scored and scored[0].result.group not in HIDDEN:
                found.setdefault(scored[0].result.group, []).append(task)
        return {group: tasks for group, tasks in found.items() if tasks}

    def tried(self) -> set[str]:
        """Return the tasks that have a result, be it that there are no data."""
        return {task for task in self.tasks if self._of(task)}

    def shown(self) -> list[str]:
        """Return the tasks for which some encoder has a score, group by group."""
        return [task for tasks in self.groups().values() for task in tasks]

    def main_name(self, task: str) -> str:
        """Return the name of the main score of a task."""
        return next(iter(self._of(task).values())).result.main

    def score(self, encoder: str, task: str, name: str | None = None) -> Score | None:
        """Return a score with its items, by default the main one; None if the encoder has none."""
        record = self.record(encoder, task)
        if record is None:
            return None
        if name is None:
            return record.main
        return next((score for score in record.result.scores if score.name == name), None)

    def cell(self, encoder: str, task: str, score: str | None = None) -> Cell | None:
        """Return a value with its interval, by default of the main score; None if there is none."""
        found = self.score(encoder, task, score)
        if found is None:
            return None
        return Cell(found.value, self.records[encoder][task].intervals.get(found.name))

    def value(self, encoder: str, task: str, score: str | None = None) -> float:
        """Return a value, by default of the main score; not a number if there is none."""
        found = self.score(encoder, task, score)
        return math.nan if found is None else found.value

    def score_names(self, task: str) -> list[str]:
        """Return the names of all scores of a task, in their order."""
        records = self._of(task).values()
        return list(dict.fromkeys(score.name for r in records for score in r.result.scores))

    def values(self, encoder: str) -> dict[str, dict[str, float]]:
        """Return the finite values of an encoder, by name of the task, then of the score."""
        return {
            task: {s.name: s.value for s in record.result.scores if math.isfinite(s.value)}
            for task in self.tasks
            if (record := self.record(encoder, task)) and record.result.scores
        }

    def best(self, task: str, score: str | None = None) -> set[str]:
        """Return the encoders with the highest value after rounding to two decimals.

        If all values are equal, or there is only one, no encoder counts as the best.
        """
        values = [self.value(encoder, task, score) for encoder in self.encoders]
        return {self.encoders[place] for place in highest(values)}

    def difference(self, encoder: str, task: str) -> Difference | None:
        """Return the main score minus that of the first encoder, with a paired interval.

        Clustering has no interval, see `UNTESTED`. The result is None if one of them has no score,
        or if they were computed on different test items.
        """
        first = self.encoders[0]
        if not self.comparable((encoder, first), task):
            return None
        value = self.value(encoder, task) - self.value(first, task)
        if not math.isfinite(value):
            return None
        if not self.resamples or task in self.groups().get("clustering", ()):
            return Difference(value, None)
        ours, theirs = (self.drawn(e, task, self.main_name(task)) for e in (encoder, first))
        return Difference(value, percentiles(ours - theirs))

    def comparable(self, encoders: Iterable[str], task: str, name: str | None = None) -> bool:
        """Return whether encoders have a score of the same test items, by default the main one."""
        first, *others = (self.score(encoder, task, name) for encoder in encoders)
        return first is not None and all(
            other is not None and same_items(first, other) for other in others
        )

    def draw(self, task: str, names: Iterable[str]) -> None:
        """Compute scores of all encoders on bootstrap samples, the same ones, for `drawn`.

        # Parameters

        task : its name; other tasks have other samples.
        names : names of scores, which cost less together.
        """
        found = {
            (encoder, task, name): score
            for encoder in self.encoders
            for name in names
            if (encoder, task, name) not in self._drawn
            and (score := self.score(encoder, task, name)) is not None
        }
        drawn = resampled(list(found.values()), self.resamples, zlib.crc32(task.encode()))
        self._drawn.update(zip(found, drawn, strict=True))

    def drawn(self, encoder: str, task: str, name: str) -> np.ndarray:
        """Return a score of an encoder on bootstrap samples of the test items, `(B,)`."""
        if (encoder, task, name) not in self._drawn:
            self.draw(task, [name])
        return self._drawn[encoder, task, name]

    def differences(self, encoder: str) -> dict[str, Difference]:
        """Return the differences of an encoder from the first one, by task; see `difference`."""
        found = {task: self.difference(encoder, task) for task in self.shown()}
        return {task: difference for task, difference in found.items() if difference is not None}

    def missing(self) -> dict[str, str]:
        """Return the tasks for which no encoder has data, with the reason."""
        return {
            task: found[0].result.error or ""
            for task in self.tasks
            if (found := list(self._of(task).values()))
            and found[0].result.group not in HIDDEN
            and all(record.result.missing for record in found)
        }

    def failures(self) -> list[tuple[str, str, str]]:
        """Return encoder, task and error of every failure that is not due to missing data."""
        return [
            (encoder, task, record.result.error)
            for encoder in self.encoders
            for task in self.tasks
            if (record := self.record(encoder, task))
            and record.result.error is not None
            and not record.result.missing
        ]

    def notes(self) -> dict[str, dict[str, list[str]]]:
        """Return the encoders that each note was made for, by task, then by note."""
        found: dict[str, dict[str, list[str]]] = {}
        for task in self.tasks:
            for encoder, record in self._of(task).items():
                for note in record.result.notes:
                    found.setdefault(task, {}).setdefault(note, []).append(encoder)
        return found

    def _of(self, task: str) -> dict[str, Record]:
        return {name: r for name in self.encoders if (r := self.record(name, task))}
