"""Paired tests between all encoders of a comparison, corrected for their number.

Both encoders of a pair are scored on the same bootstrap samples of test items, so that the
difference has a standard error of its own. The p value is that of the difference divided by this
standard error, under a normal distribution: shares of samples could not go below 1 / B, too coarse
for corrections.

Encoders called `NAME@1`, `NAME@2`, ... are trainings of the same encoder with other seeds. Together
they make one contestant `NAME`, whose score is their mean. Its standard error then has a part for
the seeds, s² / n (Welch's test), beside that for the items, and the distribution is Student's t
with Welch and Satterthwaite's degrees of freedom. The part for items contains some of what differs
between seeds already, so the test errs on the side of caution. A bootstrap of seeds and items
together would not: of 3 seeds, it finds two thirds of their variance.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from declutr.evaluation.bootstrap import Interval, percentiles
from declutr.evaluation.report.averages import DEFINITIONS, Definition
from declutr.evaluation.report.comparison import UNTESTED, Comparison
from declutr.evaluation.report.truncated_encoders import WHOLE

LEVEL = 0.05
"""The level at which a difference counts, after the correction."""
_UNTESTED = re.compile(r".*(, dev|Pearson|wmean.*|, 7 of its 10 tasks)")
TESTED = tuple(each for each in DEFINITIONS if not _UNTESTED.fullmatch(each.name))
"""The averages that are tested: not those of development splits, nor several of the same tasks."""
_SEED = re.compile(r"(.+)@(?:seed)?(\d+)")


def contestants(comparison: Comparison) -> dict[str, list[str]]:
    """Return the encoders of each contestant: several if they differ in the seed alone.

    An encoder that is the only one of its kind, or one with leading dimensions alone, stays what it
    is.
    """
    whole = [e for e in comparison.encoders if WHOLE not in comparison.description(e)]
    stems = {e: match[1] for e in whole if (match := _SEED.fullmatch(e))}
    several = {s for s in stems.values() if list(stems.values()).count(s) > 1 and s not in whole}
    found: dict[str, list[str]] = {}
    for encoder in comparison.encoders:
        stem = stems.get(encoder, encoder)
        found.setdefault(stem if stem in several else encoder, []).append(encoder)
    return found


class PairTest(NamedTuple):
    """The difference between two contestants in a score, with its interval and p values."""

    first: str
    second: str
    what: str
    """The name of the task or of the average."""
    difference: float
    """The score of the first less that of the second."""
    interval: Interval
    """The 95 % interval of the difference."""
    p: float
    """The two-sided p value of this test alone."""
    holm: float = math.nan
    """The p value after Holm's correction: the chance of a single false finding among all."""
    fdr: float = math.nan
    """The p value after Benjamini and Hochberg's correction: the share of false findings."""

    @property
    def holds(self) -> bool:
        """Whether the difference counts after Holm's correction."""
        return self.holm < LEVEL


@dataclass(frozen=True)
class Scored:
    """A contestant's score: of each seed, and on bootstrap samples of test items.

    # Parameters

    seeds : the score of each seed, `(n,)`.
    drawn : the mean over seeds on each bootstrap sample, `(B,)`.
    """

    seeds: np.ndarray
    drawn: np.ndarray

    def against(self, other: "Scored") -> tuple[float, Interval, float]:
        """Return the difference from another score, its 95 % interval and its p value."""
        from scipy.stats import t as student

        value = float(self.seeds.mean() - other.seeds.mean())
        drawn = self.drawn - other.drawn
        several = [one.seeds for one in (self, other) if one.seeds.size > 1]
        parts = [(float(seeds.var(ddof=1)) / seeds.size, seeds.size) for seeds in several]
        of_seeds = sum(part for part, _ in parts)
        error = math.sqrt(float(np.nanvar(drawn, ddof=1)) + of_seeds)
        if error == 0:  # of one item, or as much on each: nothing can be told of others
            return value, Interval(value, value), 1.0
        weight = sum(part**2 / (n - 1) for part, n in parts)
        freedom = error**4 / weight if weight else math.inf
        p = float(2 * student.sf(abs(value) / error, freedom))
        if not of_seeds:
            return value, percentiles(drawn), p
        half = float(student.ppf(0.975, freedom)) * error
        return value, Interval(value - half, value + half), p


@dataclass(frozen=True)
class Pairs:
    """All tests of a comparison; tasks and averages are corrected apart from each other."""

    contestants: Mapping[str, Sequence[str]]
    tasks: Sequence[PairTest]
    averages: Sequence[PairTest]


def pairs(comparison: Comparison, definitions: Sequence[Definition] = TESTED) -> Pairs:
    """Test every pair of contestants on every task's main score and on every average.

    Pairs that lack a score, or were scored on other test items, are left out, and so are the groups
    `UNTESTED` and averages that have a task of theirs.

    # Parameters

    comparison : the results. Without bootstrap samples there are no tests.
    definitions : the averages.
    """
    several = contestants(comparison)
    if len(several) < 2 or not comparison.resamples:
        return Pairs(several, [], [])
    tasks = [
        Definition(task, ({task: comparison.main_name(task)},))
        for group, names in comparison.groups().items()
        if group not in UNTESTED
        for task in names
    ]
    groups = comparison.groups()
    untested = {task for group in UNTESTED for task in groups.get(group, ())}
    members = [
        definition
        for definition in definitions
        if untested.isdisjoint(definition.members)
        and sum(_has(comparison, group, definition) for group in several.values()) > 1
    ]
    names: dict[str, dict[str, None]] = {}  # what to draw together
    for definition in (*tasks, *members):
        for task, name in definition.members.items():
            names.setdefault(task, {})[name] = None
    for task, of_task in names.items():
        comparison.draw(task, of_task)
    return Pairs(several, *(_tests(comparison, several, family) for family in (tasks, members)))


def _tests(
    comparison: Comparison, several: Mapping[str, Sequence[str]], family: Sequence[Definition]
) -> list[PairTest]:
    found = []
    for definition in family:
        scored = {
            name: _scored(comparison, group, definition)
            for name, group in several.items()
            if _has(comparison, group, definition)
        }
        for first, second in combinations(scored, 2):
            both = [*several[first], *several[second]]
            if all(comparison.comparable(both, *member) for member in definition.members.items()):
                tested = scored[first].against(scored[second])
                found.append(PairTest(first, second, definition.name, *tested))
    return corrected([test for test in found if math.isfinite(test.p)])


def _has(comparison: Comparison, group: Sequence[str], definition: Definition) -> bool:
    """Return whether all encoders of a group have finite scores in all that is averaged."""
    return all(
        math.isfinite(comparison.value(encoder, *member))
        for encoder in group
        for member in definition.members.items()
    )


def _scored(comparison: Comparison, group: Sequence[str], definition: Definition) -> Scored:
    def mean(of: Callable[[str, str, str], Any], encoder: str) -> Any:
        return definition.mean({t: of(encoder, t, name) for t, name in definition.members.items()})

    seeds = np.array([mean(comparison.value, encoder) for encoder in group])
    return Scored(seeds, np.mean([mean(comparison.drawn, encoder) for encoder in group], axis=0))


def holm(p: np.ndarray) -> np.ndarray:
    """Return p values `(n,)` corrected for their number (Holm, 1979)."""
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.minimum(steps, 1)
    return found


def corrected(tests: Sequence[PairTest]) -> list[PairTest]:
    """Return tests with p values corrected for their number (Holm, 1979; Benjamini et al., 1995).

    Holm's holds whatever the tests have to do with each other; Benjamini and Hochberg's assumes
    that they are independent or that their statistics go up and down together.
    """
    if not tests:
        return []
    from scipy.stats import false_discovery_control

    p = np.array([test.p for test in tests])
    both = zip(tests, holm(p).tolist(), false_discovery_control(p).tolist(), strict=True)
    return [test._replace(holm=one, fdr=other) for test, one, other in both]
