"""The section of a report that tells what leading dimensions are worth."""

from __future__ import annotations

from declutr.evaluation.report.comparison import GROUPS
from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.dimensions import Curves, families
from declutr.evaluation.report.tables import difference, table, text

_ABOUT_DIMENSIONS = """\
`NAME@32` are the 32 leading dimensions of an encoder's embeddings, scaled to length 1 again if
those are. Classifiers are trained on what is kept. In percent, with the share of the score that
all dimensions have."""

_ABOUT_LOSSES = """\
Below, by task, what is lost: the main score less that with all dimensions, with the 95 % interval
of the difference, both on the same drawn items. Bold: it leaves out zero."""


def dimensions(report: Contents) -> str:
    rows = [[text(cell) for cell in row] for row in dimension_rows(report)]
    if not rows:
        return ""
    parts = ["## Dimension against quality", _ABOUT_DIMENSIONS, report.picture("dimensions")]
    parts += [table(rows[0], rows[1:]), _ABOUT_LOSSES]
    parts += [_lost(report, encoder) for encoder in report.losses]
    means = [(group, found) for group, found in report.curves.items() if len(found.tasks) > 1]
    parts += [f"{_mean_of(group, found)}: {', '.join(found.tasks)}." for group, found in means]
    return "\n\n".join(part for part in parts if part)


def dimension_rows(report: Contents) -> list[list[str]]:
    """A header, and a row for each encoder and each number of dimensions."""
    if not report.curves:
        return []
    header = ["encoder", "dimensions"]
    for group, found in report.curves.items():
        one = f"{found.tasks[0]}, {report.comparison.main_name(found.tasks[0])}"
        header.append(one if len(found.tasks) == 1 else _mean_of(group, found))
    rows = [header]
    names: dict[str, dict[int, str]] = {}
    for found in report.curves.values():
        names |= found.names
    for whole in filter(names.__contains__, report.whole.encoders):
        for dimension, name in names[whole].items():
            cells = [_share(found, whole, name) for found in report.curves.values()]
            rows.append([name, str(dimension), *cells])
    return rows


def _lost(report: Contents, whole: str) -> str:
    """A table of losses, a row for each task."""
    truncated, found = families(report.comparison)[whole], report.losses[whole]
    rows = [
        [
            text(task),
            report.comparison.main_name(task),
            *(difference(found[name].get(task)) for name in truncated.values()),
        ]
        for of_group in report.curves.values()
        for task in of_group.tasks
        if any(task in found[name] for name in truncated.values())
    ]
    header = [text(whole), "score", *(str(dimension) for dimension in truncated)]
    return table(header, rows) if rows else ""


def _mean_of(group: str, found: Curves) -> str:
    return f"{GROUPS.get(group, group)}, mean of {len(found.tasks)}"


def _share(found: Curves, whole: str, name: str) -> str:
    """A mean, and how much that is of the whole encoder's."""
    if whole not in found.names or name not in found.names[whole].values():
        return "–"
    value, all_of_it = found.mean(name), found.mean(whole)
    share = f" ({100 * value / all_of_it:.1f} %)" if name != whole and all_of_it > 0 else ""
    return f"{value:.2f}{share}"
