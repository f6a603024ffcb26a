"""Bars for tasks, with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from declutr.evaluation.report.comparison import GROUPS, Comparison
from declutr.evaluation.report.plots.style import look, new_figure, shortened


def task_bars(comparison: Comparison) -> Any:
    """A panel for each group of tasks, a bar for each encoder; none without scores."""
    groups = {name: rows for name, rows in comparison.groups().items() if name != "geometry"}
    if not groups:
        return None
    columns = _two_columns(groups) if sum(map(len, groups.values())) > 12 else [list(groups)]
    encoders = len(comparison.encoders)
    step = encoders + 0.9  # bars a task, and the space between tasks
    bar = 0.135 if encoders < 6 else 0.1  # inches, as all that follows
    above, below, panel = 0.3, 0.35, 4.3
    margin = 0.2 + 0.08 * max(len(task) for rows in groups.values() for task in rows)
    legend = 0.1 + 0.22 * math.ceil(encoders / (2 * len(columns))) if encoders > 1 else 0.1
    tall = {name: len(rows) * step * bar for name, rows in groups.items()}
    height = legend + max(sum(tall[g] + above + below for g in names) for names in columns)
    width = len(columns) * (margin + panel + 0.2)
    figure = new_figure(width, height, layout="none")
    low = min(0.0, *(v for group in groups.values() for v in _lows(comparison, group)))
    for place, names in enumerate(columns):
        left, top = margin + place * (margin + panel + 0.2), height - legend
        for group in names:
            bottom = top - above - tall[group]
            box = (left / width, bottom / height, panel / width, tall[group] / height)
            _bars(figure.add_axes(box), comparison, group, groups[group], step, low)
            top = bottom - below
    if encoders > 1:
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="upper center", ncols=min(encoders, 2 * len(columns)))
    return figure


def _two_columns(groups: dict[str, list[str]]) -> list[list[str]]:
    """Whole groups, in order, divided where the columns come out most alike."""
    names, sizes = list(groups), [len(rows) + 2 for rows in groups.values()]
    if len(names) == 1:
        return [names]
    cut = min(range(1, len(names)), key=lambda c: max(sum(sizes[:c]), sum(sizes[c:])))
    return [names[:cut], names[cut:]]


def _lows(comparison: Comparison, tasks: Sequence[str]) -> list[float]:
    cells = [comparison.cell(e, task) for e in comparison.encoders for task in tasks]
    lows = [c.interval.low if c.interval else c.value for c in cells if c is not None]
    return [low for low in lows if math.isfinite(low)] or [0.0]


def _bars(
    axes: Any, comparison: Comparison, group: str, tasks: list[str], step: float, low: float
) -> None:
    for number, encoder in enumerate(comparison.encoders):
        for row, task in enumerate(tasks):
            cell = comparison.cell(encoder, task)
            place = row * step + number
            label = shortened(encoder) if row == 0 else None
            width = cell.value if cell is not None and math.isfinite(cell.value) else 0.0
            axes.barh(place, width, height=0.86, label=label, **look(number))
            if cell is None or not math.isfinite(cell.value):
                axes.text(0.6, place, "none", va="center", fontsize=7, color="#888888")
            elif cell.interval is not None:
                axes.plot(cell.interval, [place, place], color="#222222", linewidth=1.1)
    middle = (len(comparison.encoders) - 1) / 2
    axes.set_yticks([row * step + middle for row in range(len(tasks))], tasks)
    axes.set_ylim(len(tasks) * step - 0.9, -1.0)
    axes.set_xlim(low * 1.05, 100)
    axes.axvline(0, color="#888888", linewidth=0.8)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_title(GROUPS.get(group, group))
