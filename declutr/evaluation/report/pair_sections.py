"""The sections of a report on ranks, on pairs of encoders and on training seeds, in Markdown."""

import math
from collections.abc import Sequence

from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.pairs import LEVEL, PairTest
from declutr.evaluation.report.tables import bold, entry, section, table, text

_ABOUT_PAIRS = """\
Each pair on the same bootstrap samples of test items. p values are those of a normal distribution
(of Student's t where encoders have several seeds), two-sided. "Better" counts tasks whose p value
is below 5 % after a correction for {} of tasks: Holm's, under which a single false
finding has a chance of at most 5 %, and in brackets Benjamini and Hochberg's, under which at most
5 % of findings are expected to be false."""

_ABOUT_AVERAGES = """\
The first less the second in averages, with the p value after Holm's correction for {} of averages;
bold if it is below 5 %."""

_ABOUT_SEEDS = """\
`NAME@1`, `NAME@2`, ... are trainings of one encoder with other seeds: the mean ± the standard
deviation over them. Tests between encoders count both seeds and test items as drawn at random
(Welch's test, whose error also has the part for items)."""


def standing(report: Contents) -> str:
    """Return the section with encoders in the order of a score; empty if none was asked for."""
    if report.ranking is None:
        return ""
    name, rows = report.ranking.name, []
    best = next((one.name for one in report.ranking.rows if not one.quoted), "")
    tests = [*report.pairs.tasks, *report.pairs.averages]
    against = {frozenset((t.first, t.second)): t for t in tests if t.what == name}
    rank = 0
    for one in report.ranking.rows:
        rank += not one.quoted
        test = against.get(frozenset((best, one.name)))
        told = "–" if test is None or one.quoted else _p(test.holm)
        rows.append(["–" if one.quoted else str(rank), one.label, one.entry.text, told])
    about = f"By {name}. p: of the difference from the first, after Holm's correction."
    lacking = report.ranking.lacking
    notes = f"Without this score: {', '.join(map(text, lacking))}." if lacking else ""
    return section("Leaderboard", about, table(["rank", "encoder", name, "p"], rows), notes)


def all_pairs(report: Contents) -> str:
    """Return the section with tests of all pairs of encoders; empty with fewer than two."""
    tests, averages = report.pairs.tasks, report.pairs.averages
    if not tests:
        return ""
    rows = []
    for pair, of_pair in _by_pair(tests).items():
        counts = [
            f"{sum(_better(t, way, t.holm) for t in of_pair)} "
            f"({sum(_better(t, way, t.fdr) for t in of_pair)})"
            for way in (1, -1)
        ]
        rows.append([*pair, str(len(of_pair)), *counts])
    header = ["first", "second", "tasks", "first better", "second better"]
    parts = [_ABOUT_PAIRS.format(_count(tests)), table(header, rows)]
    if averages:
        names = list(dict.fromkeys(test.what for test in averages))
        rows = []
        for pair, of_pair in _by_pair(averages).items():
            known = {test.what: test for test in of_pair}
            rows.append([*pair, *(_difference(known.get(name)) for name in names)])
        header = ["first", "second", *names]
        parts += [_ABOUT_AVERAGES.format(_count(averages)), table(header, rows)]
    return section("Pairs of encoders", *parts)


def seeds(report: Contents) -> str:
    """Return the section with means and deviations over training seeds; empty without any."""
    groups = {name: of for name, of in report.contestants.items() if len(of) > 1}
    if not groups:
        return ""
    c, rows = report.whole, []
    for task in c.shown():
        values = [[c.value(encoder, task) for encoder in of] for of in groups.values()]
        rows.append([task, c.main_name(task), *(entry(of_one).text for of_one in values)])
    for name in report.averages_of(next(iter(groups.values()))[0]):
        known = [[report.averages_of(e).get(name, math.nan) for e in of] for of in groups.values()]
        rows.append([name, "average", *(entry(of_one).text for of_one in known)])
    header = ["task", "score", *(f"{name} ({len(of)} seeds)" for name, of in groups.items())]
    return section("Training seeds", _ABOUT_SEEDS, table(header, rows))


def _by_pair(tests: Sequence[PairTest]) -> dict[tuple[str, str], list[PairTest]]:
    found: dict[tuple[str, str], list[PairTest]] = {}
    for test in tests:
        found.setdefault((test.first, test.second), []).append(test)
    return found


def _better(test: PairTest, way: int, p: float) -> bool:
    return way * test.difference > 0 and p < LEVEL


def _difference(test: PairTest | None) -> str:
    if test is None:
        return "–"
    return f"{bold(f'{test.difference:+.2f}', test.holds)} (p {_p(test.holm)})"


def _count(tests: Sequence[PairTest]) -> str:
    return f"{len(tests)} test{'s' * (len(tests) != 1)}"


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"
