"""Dimension against quality."""

from __future__ import annotations

import math
from typing import Any

from declutr.evaluation.report.comparison import GROUPS, Comparison
from declutr.evaluation.report.dimensions import Curves, curves
from declutr.evaluation.report.plots.style import COLOURS, new_panels, shortened

_MARKERS = "osD^vPX"
_LEAST_SPAN = 6.0  # percent; less would make cliffs of noise
_BANDS = 3  # as many encoders have intervals drawn; of more, they cover each other


def dimension_curves(comparison: Comparison) -> Any:
    """A panel for each group of tasks, a line for each encoder; none without truncated encoders.

    Scores stand as they are, not as shares of those with all dimensions: of two encoders, the
    better one is above.
    """
    found = curves(comparison)
    if not found:
        return None
    widths = {name: max(of_one) for group in found.values() for name, of_one in group.names.items()}
    encoders = [name for name in comparison.encoders if name in widths]
    figure, panels = new_panels(len(found), width=4.4, height=3.5)
    for axes, (group, of_group) in zip(panels, found.items(), strict=True):
        _panel(axes, comparison, group, of_group, encoders)
    labels = [f"{shortened(name, 22)} ({widths[name]})" for name in encoders]
    handles = [_handle(label, number) for number, label in enumerate(labels)]
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
        look = _look(number)
        x = list(names)
        if several:
            for task in of_group.tasks:
                scores = [of_group.score(name, task) for name in names.values()]
                axes.plot(x, scores, color=look["color"], linewidth=0.8, alpha=0.35)
        elif len(of_group.names) <= _BANDS:
            cells = [comparison.cell(name, of_group.tasks[0]) for name in names.values()]
            bounds = [
                cell.interval if cell and cell.interval else (math.nan,) * 2 for cell in cells
            ]
            low, high = zip(*bounds, strict=True)
            axes.fill_between(x, low, high, color=look["color"], alpha=0.12, linewidth=0)
        means = [of_group.mean(name) for name in names.values()]
        axes.plot(x, means, linewidth=2, markersize=5.5, zorder=3, **look)
        # All dimensions: not cut, so not filled.
        axes.plot(x[:1], means[:1], markersize=8, zorder=4, **look | {"markerfacecolor": "white"})
    title = GROUPS.get(group, group)
    if several:
        axes.set_title(f"{title}, mean of {len(of_group.tasks)}")
        axes.set_ylabel("main score, %")
    else:
        axes.set_title(of_group.tasks[0])
        axes.set_ylabel(f"{comparison.main_name(of_group.tasks[0])}, %")
    axes.set_xlabel("dimensions kept")
    axes.grid()
    _scale(axes, [dimension for names in of_group.names.values() for dimension in names])


def _scale(axes: Any, dimensions: list[int]) -> None:
    """Powers of two across, and no more height than scores need."""
    low, high = math.log2(min(dimensions)), math.log2(max(dimensions))
    room = 0.05 * (high - low) + 0.1
    axes.set_xscale("log", base=2)
    every = 1 if high - low <= 7 else 2
    powers = [2**power for power in range(math.ceil(low), math.floor(high) + 1, every)]
    axes.set_xticks(powers or [min(dimensions)], [str(x) for x in powers or [min(dimensions)]])
    axes.set_xticks([], minor=True)
    axes.set_xlim(2 ** (low - room), 2 ** (high + room))
    bottom, top = axes.get_ylim()
    lacking = max(0.0, _LEAST_SPAN - (top - bottom)) / 2
    axes.set_ylim(bottom - lacking, top + lacking)


def _look(number: int) -> dict[str, Any]:
    """Colour and mark of an encoder; beyond those there are, dashed."""
    style = ("-", "--", ":", "-.")[number // len(COLOURS) % 4]
    marker = _MARKERS[number % len(_MARKERS)]
    return {"color": COLOURS[number % len(COLOURS)], "marker": marker, "linestyle": style}


def _handle(label: str, number: int) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, linewidth=2, markersize=5.5, **_look(number))
