"""Means over seeds, and gains over the start with their intervals, from the finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from benchmarks.results import Row
from benchmarks.study.grid import Entry
from benchmarks.study.lines import Line, line_of, unpacked
from declutr.evaluation.report.pairs import Scored, holm

NAMES = {
    "span retrieval": "held-out spans",
}
"""Of tasks, where a table calls them otherwise."""


class Gain(NamedTuple):
    """A difference from the start, with its 95 % interval and its p value."""

    value: float
    low: float
    high: float
    p: float

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
    drawn: bool = True
    """Whether seeds change anything."""

    @property
    def missing(self) -> int:
        """The number of seeds that are not finished."""
        return self.wanted - len(self.lines)

    @property
    def tells(self) -> bool:
        """Whether something can be said beyond these runs: one seed says nothing about others."""
        return len(self.lines) > 1 or not self.drawn

    @cached_property
    def seconds(self) -> float | None:
        """The mean processor time of training, of runs that were not resumed."""
        known = [line["processor_seconds"] for line in self.lines if not line.get("resumed")]
        return float(np.mean(known)) if known else None

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
        return None if ours is None or theirs is None else _gain(ours, theirs)


def _gain(ours: Scored, theirs: Scored) -> Gain:
    value, interval, p = ours.against(theirs)
    return Gain(value, *interval, p)


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
            about = same[0]["factors"], same[0]["drawn"]
            made.append(Group(corpus, start, row, recipe, finished, len(same), *about))
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

    The groups of a pair are alike in all other factors, and are all that the difference is about:
    its interval is over seeds and test items, as that of a gain.

    Args:
        every: the groups, with scores of every task.
        tasks: whose main scores are compared, and at last their mean.
        asked: a factor and two values of it, of which the second is subtracted.
    """
    found: list[tuple[Row, dict[str, Gain]]] = []
    for factor, value, other in asked:
        pairs = list(_pairs(every, factor, value, other))
        if not pairs:
            continue
        row = {"compared": f"{factor}: {value} less {other}", "pairs": str(len(pairs))}
        ours, theirs = ([pair[side] for pair in pairs] for side in (0, 1))
        asked_of = {NAMES.get(task, task): [task] for task in tasks} | {"mean": tasks}
        gaps = {name: _gain(_mean(ours, of), _mean(theirs, of)) for name, of in asked_of.items()}
        found.append((row, gaps))
    certain = iter(_certain([gap for _, gaps in found for gap in gaps.values()]))
    return [
        {**row, **{name: _told(gap, bold=next(certain)) for name, gap in gaps.items()}}
        for row, gaps in found
    ]


def _mean(side: Sequence[Group], tasks: Sequence[str]) -> Scored:
    """Return the mean of groups and tasks, of each seed that all groups have."""
    number = min(len(group.lines) for group in side)
    scored = [scored for group in side for task in tasks if (scored := group.scored(task))]
    return Scored(
        np.mean([one.seeds[:number] for one in scored], axis=0),
        np.mean([one.drawn for one in scored], axis=0),
    )


def _pairs(
    every: Sequence[Group], factor: str, value: Any, other: Any
) -> Iterator[tuple[Group, Group]]:
    for one in every:
        if one.factors.get(factor) == value:
            wanted = {**one.factors, factor: other}
            yield from ((one, group) for group in every if group.factors == wanted)


def certain_gains(every: Sequence[Group], tasks: Sequence[str]) -> set[tuple[str, ...]]:
    """Return corpus, start, row and task of the gains that hold against their number (Holm)."""
    found: dict[tuple[str, ...], Gain] = {}
    for group in every:
        start = start_of(group, every)
        if start is None or not group.tells:
            continue
        for task in tasks:
            if gain := group.gain(start, task):
                found[group.corpus, group.start, group.row, task] = gain
    holding = _certain(list(found.values()))
    return {key for key, holds in zip(found, holding, strict=True) if holds}


def _certain(gains: Sequence[Gain]) -> list[bool]:
    return [p < 0.05 for p in holm(np.array([gain.p for gain in gains]))]


def table_rows(every: Sequence[Group], corpus: str, tasks: Sequence[str]) -> list[Row]:
    """Return the rows of a corpus' table: each start, and below it what was trained from it."""
    of_corpus = [group for group in every if group.corpus == corpus]
    order = list(dict.fromkeys(group.start for group in of_corpus))
    of_corpus.sort(key=lambda group: (order.index(group.start), group.recipe is not None))
    certain = certain_gains(every, tasks)
    return [_row(group, start_of(group, every), tasks, certain) for group in of_corpus]


def _row(
    group: Group, start: Group | None, tasks: Sequence[str], certain: set[tuple[str, ...]]
) -> Row:
    row = {
        "start": group.start,
        "trained by": "–" if group.recipe is None else group.row,
        "seeds": str(len(group.lines)) + (f" of {group.wanted}" if group.missing else ""),
    }
    for task in tasks:
        bold = (group.corpus, group.start, group.row, task) in certain
        row[NAMES.get(task, task)] = _cell(group, start, task, bold)
    untrained = group.recipe is None or group.seconds is None
    return {**row, "processor s": "–" if untrained else f"{group.seconds:.0f}"}


def _cell(group: Group, start: Group | None, task: str, bold: bool) -> str:
    """Return the mean score; of trained encoders also the gain and its interval."""
    scored = group.scored(task)
    if scored is None:
        return "–"
    mean = f"{scored.seeds.mean():.1f}"
    gain = group.gain(start, task) if start else None
    return mean if gain is None else f"{mean} {_told(gain, bold)}"


def _told(gain: Gain, bold: bool) -> str:
    of_gain = f"{gain.value:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"
    return f"**{of_gain}**" if bold else of_gain
