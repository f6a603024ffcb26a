"""The section of a report on truncated encoders, in Markdown."""

from declutr.evaluation.report.comparison import GROUPS
from declutr.evaluation.report.contents import Contents
from declutr.evaluation.report.dimensions import Curves, families
from declutr.evaluation.report.score_sections import of_differences
from declutr.evaluation.report.tables import section, table

_ABOUT_DIMENSIONS = """\
`NAME@32` are the 32 leading dimensions of an encoder's embeddings, scaled to length 1 again if
those are. Classifiers are trained on what is kept. In percent, with the share of the score that
all dimensions have."""

_ABOUT_LOSSES = """\
Below, by task, what is lost: the main score less that with all dimensions, with the 95 % interval
of the difference, both on the same drawn items. Bold: it leaves out zero."""


def dimensions(report: Contents) -> str:
    """Return the section on truncated encoders; empty if there are none."""
    rows = dimension_rows(report)
    if not rows:
        return ""
    parts = [_ABOUT_DIMENSIONS, report.picture("dimensions"), table(rows[0], rows[1:])]
    parts.append(_ABOUT_LOSSES)
    tasks = [task for of_group in report.curves.values() for task in of_group.tasks]
    for whole, truncated in families(report.comparison).items():
        if truncated:
            lost = {str(d): report.losses[whole][name] for d, name in truncated.items()}
            parts.append(of_differences(report, whole, tasks, lost))
    for group, found in report.curves.items():
        if len(found.tasks) > 1:
            parts.append(f"{_mean_of(group, found)}: {', '.join(found.tasks)}.")
    return section("Dimension against quality", *parts)


def dimension_rows(report: Contents) -> list[list[str]]:
    """Return a header, then a row for each encoder and number of dimensions."""
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


def _mean_of(group: str, found: Curves) -> str:
    return f"{GROUPS.get(group, group)}, mean of {len(found.tasks)}"


def _share(found: Curves, whole: str, name: str) -> str:
    """Return a mean score, with its share of the whole encoder's mean."""
    if whole not in found.names or name not in found.names[whole].values():
        return "–"
    value, all_of_it = found.mean(name), found.mean(whole)
    share = f" ({100 * value / all_of_it:.1f} %)" if name != whole and all_of_it > 0 else ""
    return f"{value:.2f}{share}"
