"""Means over seeds, and gains over the start with their intervals, from the finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t

from benchmarks.results import Row
from benchmarks.study.grid import Entry
from benchmarks.study.lines import Line, line_of, unpacked
from declutr.evaluation.report.pairs import Scored

NAMES = {
    "span retrieval": "held-out spans",
}
"""Of tasks, where a table calls them otherwise."""


class Gain(NamedTuple):
    """A difference from the start, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Group:
    """The runs of a start and a row on one corpus: they differ in the seed alone."""

    corpus: str
    start: str
    row: str
    recipe: str | None
    lines: Sequence[Line]
    wanted: int
    """The number of seeds in the grid."""
    factors: Mapping[str, Any] = field(default_factory=dict)
    """By which a part compares groups, if it does."""

    @property
    def missing(self) -> int:
        """The number of seeds that are not finished."""
        return self.wanted - len(self.lines)

    @cached_property
    def seconds(self) -> float:
        """The mean processor time of training."""
        return float(np.mean([line["processor_seconds"] for line in self.lines]))

    def scored(self, task: str) -> Scored | None:
        """Return the main score of a task: of each seed, and on bootstrap samples of the items."""
        if not all(task in line["scores"] for line in self.lines):
            return None
        values = [next(iter(line["scores"][task].values())) for line in self.lines]
        drawn = [unpacked(line["samples"][task]) for line in self.lines]
        return Scored(np.array(values), np.mean(drawn, axis=0))

    def mean(self, task: str) -> float:
        """Return the mean over seeds of the main score of a task, which all seeds have."""
        return float(np.mean([next(iter(line["scores"][task].values())) for line in self.lines]))

    def gain(self, other: Group, task: str) -> Gain | None:
        """Return the gain over another group in a task.

        The standard error has a part for the seeds (Welch's) and one for the test items, as in
        `declutr.evaluation.report.pairs`.
        """
        ours, theirs = self.scored(task), other.scored(task)
        if ours is None or theirs is None:
            return None
        value, interval, _ = ours.against(theirs)
        return Gain(value, *interval)


def groups(entries: Sequence[Entry], lines: Sequence[Line]) -> list[Group]:
    """Return the groups with at least one finished run, in the order of the grid."""
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        key = entry["corpus"], entry["start"], entry["row"]
        found.setdefault(key, []).append(entry)
    made = []
    for (corpus, start, row), same in found.items():
        finished = [line for entry in same if (line := line_of(entry, lines)) is not None]
        recipe = same[0]["settings"]["recipe"]
        if finished:
            factors = same[0]["factors"]
            made.append(Group(corpus, start, row, recipe, finished, len(same), factors))
    return made


def start_of(group: Group, every: Sequence[Group]) -> Group | None:
    """Return the start of a trained group, if it has been scored."""
    if group.recipe is None:
        return None
    same = (g for g in every if (g.corpus, g.start) == (group.corpus, group.start))
    return next((g for g in same if g.recipe is None), None)


def comparisons(
    every: Sequence[Group], tasks: Sequence[str], asked: Sequence[tuple[str, Any, Any]]
) -> list[Row]:
    """Return the mean difference between two values of a factor, over all pairs of groups.

    The groups of a pair are alike in all other factors. Intervals are Student's, of 95 %, over the
    pairs.

    Args:
        every: the groups.
        tasks: whose main scores are compared, and at last their mean.
        asked: a factor and two values of it, of which the second is subtracted.
    """
    rows: list[Row] = []
    for factor, value, other in asked:
        pairs = list(_pairs(every, factor, value, other))
        if len(pairs) < 2:
            continue
        row = {"compared": f"{factor}: {value} less {other}", "pairs": str(len(pairs))}
        gaps = np.array([[a.mean(task) - b.mean(task) for task in tasks] for a, b in pairs])
        for task, of_task in zip([*tasks, "mean"], [*gaps.T, gaps.mean(axis=1)], strict=True):
            half = t.ppf(0.975, len(pairs) - 1) * of_task.std(ddof=1) / len(pairs) ** 0.5
            row[NAMES.get(task, task)] = _told(
                Gain(of_task.mean(), of_task.mean() - half, of_task.mean() + half)
            )
        rows.append(row)
    return rows


def _pairs(
    every: Sequence[Group], factor: str, value: Any, other: Any
) -> Iterator[tuple[Group, Group]]:
    for one in every:
        if one.factors.get(factor) == value:
            wanted = {**one.factors, factor: other}
            yield from ((one, group) for group in every if group.factors == wanted)


def table_rows(every: Sequence[Group], corpus: str, tasks: Sequence[str]) -> list[Row]:
    """Return the rows of a corpus' table: each start, and below it what was trained from it."""
    of_corpus = [group for group in every if group.corpus == corpus]
    order = list(dict.fromkeys(group.start for group in of_corpus))
    of_corpus.sort(key=lambda group: (order.index(group.start), group.recipe is not None))
    return [_row(group, start_of(group, every), tasks) for group in of_corpus]


def _row(group: Group, start: Group | None, tasks: Sequence[str]) -> Row:
    row = {
        "start": group.start,
        "trained by": "–" if group.recipe is None else group.row,
        "seeds": str(len(group.lines)) + (f" of {group.wanted}" if group.missing else ""),
    }
    for task in tasks:
        row[NAMES.get(task, task)] = _cell(group, start, task)
    return {**row, "processor s": "–" if group.recipe is None else f"{group.seconds:.0f}"}


def _cell(group: Group, start: Group | None, task: str) -> str:
    """Return the mean score; of trained encoders also the gain and its interval.

    One seed says nothing about others, so that its gain is never bold.
    """
    scored = group.scored(task)
    if scored is None:
        return "–"
    mean = f"{scored.seeds.mean():.1f}"
    gain = group.gain(start, task) if start else None
    if gain is None:
        return mean
    return f"{mean} {_told(gain, bold=len(group.lines) > 1)}"


def _told(gain: Gain, bold: bool = True) -> str:
    of_gain = f"{gain.value:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"
    return f"**{of_gain}**" if bold and gain.certain else of_gain
