"""The sections of a report that show scores, in Markdown."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite, nan
from statistics import fmean

from declutr.evaluation.report.averages import DEFINITIONS
from declutr.evaluation.report.comparison import GROUPS, WITHOUT_AVERAGE, Difference, highest
from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.score_tables import beside_quotations, not_shown
from declutr.evaluation.report.tables import (
    Entry,
    bold,
    difference,
    percent,
    plain,
    section,
    table,
    text,
)

CONVENTION = re.compile(
    r"((all|mean|wmean|cosine|trained) (Pearson|Spearman)( dev)?|MTEB Spearman)"
)
"""The names of scores that are conventions for a similarity task, not scores of a subset."""

_MEMBERS = {definition.name: set(definition.members) for definition in DEFINITIONS}
"""The tasks of each average of a paper, by its name."""

_ABOUT_CONVENTIONS = """\
`all`: the correlation over all pairs at once (SimCSE, SCD); `mean`: the mean of the subsets'
correlations, and `wmean`: that weighted by their sizes (SentEval; DeCLUTR reports the mean
Spearman); `cosine`: of cosines, and `trained`: of a regressor trained on top of embeddings
(SentEval; DeCLUTR: Pearson on `dev`, Spearman on test); `MTEB`: cosine Spearman over what MTEB
takes as the test set. For one task, `all`, `cosine` and `MTEB` are often the same number."""

_ABOUT_AVERAGES = """\
An average is given only if every task of it has a score. `DeCLUTR all` weighs all tasks alike, as
its public script has done since June 2020; `DeCLUTR v1 Avg.` is the mean of the downstream and the
probing average, as the first version of its paper prints it."""

_ABOUT_OWN_AVERAGES = "The mean of the main scores of tasks of one kind, where there are several."

_ABOUT_PUBLISHED = """\
Rows with a mark in brackets are quoted from papers, and were not measured here. A column has one
convention; a dash is what a paper does not print. Bold: the best of a column."""

_ABOUT_OTHERS = """\
Scores beside the main one: other measures, development splits (`dev`) and subsets. The highest of a
row is bold."""

_ABOUT_GEOMETRY = """\
`alignment` (lower is better) is the mean squared distance of pairs that mean the same, `uniformity`
(lower is better) tells how evenly embeddings cover the sphere (Wang and Isola, 2020), `mean cosine`
how much they point one way, the last two how few directions have the variance."""


def scores(report: Contents) -> str:
    """Return the section with the main scores of all tasks."""
    c = report.whole
    blocks = []
    for group, tasks in c.groups().items():
        if group != "geometry":
            rows = [[task, c.main_name(task), *_cells(report, task)] for task in tasks]
            blocks.append(table([GROUPS.get(group, group), "score", *c.encoders], rows))
    if not blocks:
        return "No task has a score."
    best = "; the best of a row is bold" if len(c.encoders) > 1 else ""
    about = f"In percent, with half the width of the 95 % interval{best}."
    return section("Scores", about, *blocks)


def averages(report: Contents) -> str:
    """Return the section with averages over tasks; empty without encoders."""
    encoders, tried = report.whole.encoders, report.whole.tried()
    rows, none = [], []
    for of_each in zip(*(report.averages[encoder] for encoder in encoders), strict=True):
        name = of_each[0].name
        if tried.isdisjoint(_MEMBERS[name]):
            continue  # of one's own tasks alone
        values = [nan if average.value is None else average.value for average in of_each]
        if not any(map(isfinite, values)):
            lacking = _lacked_by_all([average.missing for average in of_each])
            none.append(f"* {text(name)}: {text(_lacks(lacking))}")
            continue
        best = highest(values)
        rows.append(
            [
                name,
                *(
                    _lacks(average.missing)
                    if average.value is None
                    else bold(f"{average.value:.2f}", place in best)
                    for place, average in enumerate(of_each)
                ),
            ]
        )
    about = _ABOUT_AVERAGES if rows or none else _ABOUT_OWN_AVERAGES
    rows += _means_of_groups(report)
    if not rows and not none:
        return ""
    parts = [table(["average", *encoders], rows)] if rows else []
    if none:
        summary = f"<summary>{len(none)} averages lack tasks</summary>"
        parts += [f"<details>{summary}", "\n".join(none), "</details>"]
    return section("Averages", about, *parts)


def published(report: Contents) -> str:
    """Return the section with averages beside those of papers; empty without any."""
    if not report.quoted:
        return ""
    blocks = [f"### {text(t.title)}\n\n{t.markdown()}" for t in beside_quotations(report)]
    about = [_ABOUT_PUBLISHED] if blocks else []
    blocks += [f"Not shown: {text(name)}: {text(why)}" for name, why in not_shown(report).items()]
    return section("Beside published numbers", *about, *blocks)


def _lacked_by_all(missing: Sequence[Sequence[str]]) -> list[str]:
    """Return the tasks that all encoders lack; if there are none, those that some lack."""
    every = [task for task in missing[0] if all(task in of_one for of_one in missing)]
    return every or list(dict.fromkeys(task for of_one in missing for task in of_one))


def _lacks(missing: Sequence[str]) -> str:
    return f"lacks {', '.join(missing)}" if missing else "–"


def _means_of_groups(report: Contents) -> list[list[str]]:
    """Return rows with the mean of each group that papers have no average of.

    Its tasks, of which there are at least two, have main scores of one name.
    """
    c, rows = report.whole, []
    for group, tasks in c.groups().items():
        names = {c.main_name(task) for task in tasks}
        if group in WITHOUT_AVERAGE and len(tasks) > 1 and len(names) == 1:
            values = [fmean(c.value(encoder, task) for task in tasks) for encoder in c.encoders]
            best = highest(values)
            cells = [bold(Entry(v).text, place in best) for place, v in enumerate(values)]
            rows.append([f"{GROUPS[group]}, {names.pop()}, mean of {len(tasks)}", *cells])
    return rows


def conventions(report: Contents) -> str:
    """Return the section with similarity tasks in every convention; empty without such tasks."""
    rows = []
    for task in report.whole.groups().get("sts", []):
        names = [n for n in report.whole.score_names(task) if CONVENTION.fullmatch(n)]
        for place, name in enumerate(names):
            rows.append(["" if place else bold(task), name, *_cells(report, task, name)])
    if not rows:
        return ""
    shown = table(["task", "convention", *report.whole.encoders], rows)
    return section("Similarity in every convention", _ABOUT_CONVENTIONS, shown)


def others(report: Contents) -> str:
    """Return the section with all scores that no other section shows; empty without any."""
    c, rows = report.whole, []
    for group, tasks in c.groups().items():
        for task in tasks if group != "geometry" else ():
            names = [n for n in c.score_names(task) if n != c.main_name(task)]
            if group == "sts":
                names = [n for n in names if not CONVENTION.fullmatch(n)]
            for place, name in enumerate(names):
                rows.append(["" if place else bold(task), name, *_cells(report, task, name)])
    if not rows:
        return ""
    shown = table(["task", "score", *c.encoders], rows)
    summary = f"<details><summary>{len(rows)} scores</summary>"
    return section("Other scores", _ABOUT_OTHERS, summary, shown, "</details>")


def geometry(report: Contents) -> str:
    """Return the section on the geometry of embeddings; empty without such scores."""
    c = report.whole
    blocks = []
    for task in c.groups().get("geometry", []):
        names = c.score_names(task)
        cells = {e: [c.cell(e, task, name) for name in names] for e in c.encoders}
        rows = [[e, *map(plain, of_one)] for e, of_one in cells.items() if any(of_one)]
        blocks.append(table([task, *names], rows))
    warnings = [f"> **{text(e)}**: {text(note)}" for e, _, note in alarms(report)]
    return section("Geometry", _ABOUT_GEOMETRY, *blocks, *warnings) if blocks else ""


def alarms(report: Contents) -> Iterator[tuple[str, str, str]]:
    """Yield encoder, task and note of each collapse alarm."""
    for task in report.whole.groups().get("geometry", []):
        for note, encoders in report.whole.notes().get(task, {}).items():
            if note.startswith("COLLAPSE"):
                yield from ((encoder, task, note) for encoder in encoders)


def differences(report: Contents) -> str:
    """Return the section with differences from the first encoder; empty if there are none."""
    if not any(report.differences.values()):
        return ""
    first = text(report.whole.encoders[0])
    about = (
        f"The main score less that of {first}, with the 95 % interval of the "
        "difference, both on the same drawn items. Bold: it leaves out zero. Without any real "
        "difference, about one row in twenty would still be bold. Of uniformity, less is better."
    )
    shown = of_differences(report, "task", report.whole.shown(), report.differences)
    return section(f"Differences from {first}", about, shown)


def of_differences(
    report: Contents,
    corner: str,
    tasks: Iterable[str],
    found: Mapping[str, Mapping[str, Difference]],
) -> str:
    """Make a table of differences by task and column; tasks without any are left out."""
    c = report.comparison
    rows = [
        [task, c.main_name(task), *(difference(of_one.get(task)) for of_one in found.values())]
        for task in tasks
        if any(task in of_one for of_one in found.values())
    ]
    return table([corner, "score", *found], rows) if rows else ""


def _cells(report: Contents, task: str, score: str | None = None) -> list[str]:
    c = report.whole
    best = c.best(task, score)
    shown = []
    for encoder in c.encoders:
        cell, record = c.cell(encoder, task, score), c.record(encoder, task)
        if cell is not None:
            shown.append(bold(percent(cell), encoder in best))
        else:
            shown.append("failed" if record and record.result.error else "–")
    return shown
