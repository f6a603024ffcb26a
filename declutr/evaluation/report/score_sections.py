"""The sections of a report that tell scores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from declutr.evaluation.report.comparison import GROUPS
from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.tables import bold, difference, percent, plain, table, text

CONVENTION = re.compile(
    r"((all|mean|wmean|cosine|trained) (Pearson|Spearman)( dev)?|MTEB Spearman)"
)
"""Names of scores that are readings of a similarity task, not parts of it."""

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

_ABOUT_GEOMETRY = """\
`alignment` (lower is better) is the mean squared distance of pairs that mean the same, `uniformity`
(lower is better) tells how evenly embeddings cover the sphere (Wang and Isola, 2020), `mean cosine`
how much they point one way, the last two how few directions have the variance."""


def scores(report: Contents) -> str:
    c = report.whole
    blocks = []
    for group, tasks in c.groups().items():
        if group != "geometry":
            rows = [[text(task), c.main_name(task), *_cells(report, task)] for task in tasks]
            header = [GROUPS.get(group, group), "score", *map(text, c.encoders)]
            blocks.append(table(header, rows))
    if not blocks:
        return "No task has a score."
    about = "In percent, with half the width of the 95 % interval"
    about += "; the best of a row is bold." if len(c.encoders) > 1 else "."
    return "\n\n".join(["## Scores", about, *blocks])


def averages(report: Contents) -> str:
    c = report.whole
    rows, none = [], []
    for of_each in zip(*(report.averages[encoder] for encoder in c.encoders), strict=True):
        values = [average.value for average in of_each]
        if values == [None] * len(values):
            lacking = _lacked_by_all([average.missing for average in of_each])
            none.append(f"* {text(of_each[0].name)}: {_lacks(lacking)}")
            continue
        best = max((round(v, 2) for v in values if v is not None), default=None)
        several = len({round(v, 2) for v in values if v is not None}) > 1
        rows.append(
            [
                text(of_each[0].name),
                *(
                    _lacks(average.missing)
                    if average.value is None
                    else bold(f"{average.value:.2f}", several and round(average.value, 2) == best)
                    for average in of_each
                ),
            ]
        )
    parts = ["## Averages", _ABOUT_AVERAGES]
    if rows:
        parts.append(table(["average", *map(text, c.encoders)], rows))
    if none:
        summary = f"<summary>{len(none)} averages lack tasks</summary>"
        parts += [f"<details>{summary}", "\n".join(none), "</details>"]
    return "\n\n".join(parts) if rows or none else ""


def conventions(report: Contents) -> str:
    rows = []
    for task in report.whole.groups().get("sts", []):
        names = [n for n in report.whole.score_names(task) if CONVENTION.fullmatch(n)]
        for place, name in enumerate(names):
            first = f"**{text(task)}**" if place == 0 else ""
            rows.append([first, name, *_cells(report, task, name)])
    if not rows:
        return ""
    shown = table(["task", "convention", *map(text, report.whole.encoders)], rows)
    return f"## Similarity in every convention\n\n{_ABOUT_CONVENTIONS}\n\n{shown}"


def geometry(report: Contents) -> str:
    c = report.whole
    blocks = []
    for task in c.groups().get("geometry", []):
        names = c.score_names(task)
        rows = []
        for encoder in c.encoders:
            cells = [c.cell(encoder, task, name) for name in names]
            if any(cells):
                rows.append([text(encoder), *(plain(cell) for cell in cells)])
        blocks.append(table([text(task), *names], rows))
    if not blocks:
        return ""
    warnings = [f"> **{text(e)}**: {text(note)}" for e, _, note in alarms(report)]
    return "\n\n".join(["## Geometry", _ABOUT_GEOMETRY, *blocks, *warnings])


def alarms(report: Contents) -> Iterator[tuple[str, str, str]]:
    """Encoder, task and note of each collapse."""
    for task in report.whole.groups().get("geometry", []):
        for note, encoders in report.whole.notes().get(task, {}).items():
            if note.startswith("COLLAPSE"):
                yield from ((encoder, task, note) for encoder in encoders)


def differences(report: Contents) -> str:
    c = report.whole
    if not any(report.differences.values()):
        return ""
    first, others = c.encoders[0], c.encoders[1:]
    rows = [
        [
            text(task),
            c.main_name(task),
            *(difference(report.differences[other].get(task)) for other in others),
        ]
        for tasks in c.groups().values()
        for task in tasks
        if any(task in report.differences[other] for other in others)
    ]
    about = (
        f"The main score less that of {text(first)}, with the 95 % interval of the "
        "difference, both on the same drawn items. Bold: it leaves out zero. Of twenty rows "
        "without any difference, one may do so by chance. Of uniformity, less is better."
    )
    shown = table(["task", "score", *map(text, others)], rows)
    return f"## Differences from {text(first)}\n\n{about}\n\n{shown}"


def _cells(report: Contents, task: str, score: str | None = None) -> list[str]:
    c = report.whole
    best = c.best(task, score)
    shown = []
    for encoder in c.encoders:
        cell = c.cell(encoder, task, score)
        if cell is not None:
            shown.append(bold(percent(cell), encoder in best))
        else:
            record = c.record(encoder, task)
            shown.append("failed" if record and record.result.error else "–")
    return shown


def _lacked_by_all(missing: Sequence[Sequence[str]]) -> list[str]:
    """What every one lacks; if there is nothing, what some lack."""
    every = [task for task in missing[0] if all(task in of_one for of_one in missing)]
    return every or list(dict.fromkeys(task for of_one in missing for task in of_one))


def _lacks(missing: Sequence[str]) -> str:
    return f"lacks {text(', '.join(missing))}" if missing else "–"
