"""Pictures of scores: bars for tasks, and curves of scores over dimensions."""

import math
from collections.abc import Sequence
from typing import Any

from declutr.evaluation.report.comparison import GROUPS, Comparison
from declutr.evaluation.report.dimensions import Curves, curves
from declutr.evaluation.report.plots.style import COLOURS, new_figure, new_panels, shortened

_MARKERS = "osD^vPX"  # one for each colour
_DASHES = ("-", "--", ":", "-.")
_HATCHES = ("", "////", "....", "xxxx")
_LEAST_SPAN = 6.0  # percent; a smaller range would exaggerate noise
_BANDS = 3  # the most encoders to draw intervals for; more would overlap


def task_bars(comparison: Comparison) -> Any:
    """Draw the main scores as bars, with a panel for each group of tasks; None without scores."""
    groups = {name: rows for name, rows in comparison.groups().items() if name != "geometry"}
    if not groups:
        return None
    columns = _two_columns(groups) if sum(map(len, groups.values())) > 12 else [list(groups)]
    encoders = len(comparison.encoders)
    step = encoders + 0.9  # the bars of a task and the space between tasks, in bars
    bar = 0.135 if encoders < 6 else 0.1  # inches, like all lengths below
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
    """Divide the groups, in their order, into two columns of lengths as equal as possible."""
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
            axes.barh(place, width, height=0.86, label=label, **_bar_look(number))
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


def dimension_curves(comparison: Comparison) -> Any:
    """Draw scores over the number of dimensions; None without truncated encoders.

    Each group of tasks has a panel, each encoder a line. The scores themselves are shown, not
    shares of the score with all dimensions, so that the better one of two encoders is above.
    """
    found = curves(comparison)
    if not found:
        return None
    widths = {name: max(of_one) for group in found.values() for name, of_one in group.names.items()}
    encoders = [name for name in comparison.encoders if name in widths]
    figure, panels = new_panels(len(found), width=4.4, height=3.5)
    for axes, (group, of_group) in zip(panels, found.items(), strict=True):
        _panel(axes, comparison, group, of_group, encoders)
    from matplotlib.lines import Line2D

    labels = [f"{shortened(name, 22)} ({widths[name]})" for name in encoders]
    handles = [
        Line2D([], [], label=label, linewidth=2, markersize=5.5, **_line_look(number))
        for number, label in enumerate(labels)
    ]
    per_row = max(2, 2 * min(len(found), 3))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(per_row, len(handles)))
    return figure


def _panel(
    axes: Any, comparison: Comparison, group: str, of_group: Curves, encoders: list[str]
) -> None:
    several = len(of_group.tasks) > 1
    for number, encoder in enumerate(encoders):
        names = of_group.names.get(encoder, {})
        if not names:
            continue
        look = _line_look(number)
        x = list(names)
        if several:
            for task in of_group.tasks:
                scores = [comparison.value(name, task) for name in names.values()]
                axes.plot(x, scores, color=look["color"], linewidth=0.8, alpha=0.35)
        elif len(of_group.names) <= _BANDS:
            cells = [comparison.cell(name, of_group.tasks[0]) for name in names.values()]
            unknown = (math.nan, math.nan)
            bounds = [cell.interval or unknown if cell else unknown for cell in cells]
            area = {"color": look["color"], "alpha": 0.12, "linewidth": 0}
            axes.fill_between(x, *zip(*bounds, strict=True), **area)
        means = [of_group.mean(name) for name in names.values()]
        axes.plot(x, means, linewidth=2, markersize=5.5, zorder=3, **look)
        # An open marker distinguishes the embedding with all dimensions.
        axes.plot(x[:1], means[:1], markersize=8, zorder=4, **look | {"markerfacecolor": "white"})
    first = of_group.tasks[0]
    title, score = first, comparison.main_name(first)
    if several:
        title, score = f"{GROUPS.get(group, group)}, mean of {len(of_group.tasks)}", "main score"
    axes.set_title(title)
    axes.set(xlabel="dimensions kept", ylabel=f"{score}, %")
    axes.grid()
    _scale(axes, [dimension for names in of_group.names.values() for dimension in names])


def _scale(axes: Any, dimensions: list[int]) -> None:
    """Set a logarithmic horizontal axis and a vertical axis with a minimum range."""
    low, high = math.log2(min(dimensions)), math.log2(max(dimensions))
    room = 0.05 * (high - low) + 0.1
    axes.set_xscale("log", base=2)
    every = 1 if high - low <= 7 else 2
    powers = [2**power for power in range(math.ceil(low), math.floor(high) + 1, every)]
    ticks = powers or [min(dimensions)]
    axes.set_xticks(ticks, map(str, ticks))
    axes.set_xticks([], minor=True)
    axes.set_xlim(2 ** (low - room), 2 ** (high + room))
    bottom, top = axes.get_ylim()
    lacking = max(0.0, _LEAST_SPAN - (top - bottom)) / 2
    axes.set_ylim(bottom - lacking, top + lacking)


def _bar_look(number: int) -> dict[str, Any]:
    """Return the colour of an encoder's bars; colours repeat with hatching."""
    rounds, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "hatch": _HATCHES[rounds % 4], "edgecolor": "white"}


def _line_look(number: int) -> dict[str, Any]:
    """Return the colour and marker of an encoder's line; colours repeat with dashes."""
    rounds, place = divmod(number, len(COLOURS))
    return {"color": COLOURS[place], "marker": _MARKERS[place], "linestyle": _DASHES[rounds % 4]}
