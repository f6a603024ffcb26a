"""Alignment against uniformity, as in figure 2 of SCD (Klein and Nabi, 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.plots.style import COLOURS, new_figure, shortened


def plane(comparison: Comparison, averages: Mapping[str, Mapping[str, float]]) -> Any:
    """Uniformity across, alignment up, a dot for each encoder; none unless one has both."""
    at = {e: point for e in comparison.encoders if (point := _place(comparison, e)) is not None}
    if not at:
        return None
    label, values = _colour_by(comparison, averages, list(at))
    figure = new_figure(6.6, 4.8)
    axes = figure.add_subplot()
    x, y = np.array(list(at.values())).T
    if len(set(values)) > 1:
        dots = axes.scatter(
            x, y, s=110, c=values, cmap="viridis", edgecolor="#333333", linewidth=0.8, zorder=3
        )
        bar = figure.colorbar(dots, ax=axes, pad=0.02, aspect=28)
        bar.set_label(label)
        bar.outline.set_visible(False)
    else:
        axes.scatter(x, y, s=110, color=COLOURS[0], edgecolor="#333333", zorder=3)
    axes.margins(0.22)
    axes.set_xlabel("uniformity (lower: more evenly spread)")
    axes.set_ylabel("alignment (lower: the same meaning is closer)")
    axes.grid()
    _label_points(figure, axes, x, y, [shortened(name) for name in at])
    return figure


def _place(comparison: Comparison, encoder: str) -> tuple[float, float] | None:
    for scores in comparison.values(encoder).values():
        if "alignment" in scores and "uniformity" in scores:
            return scores["uniformity"], scores["alignment"]
    named: dict[str, float] = {}
    for task, scores in comparison.values(encoder).items():
        for name, value in scores.items():
            for wanted in ("alignment", "uniformity"):
                if name == wanted or (task.lower() == wanted and len(scores) == 1):
                    named[wanted] = value
    return (named["uniformity"], named["alignment"]) if len(named) == 2 else None


def _colour_by(
    comparison: Comparison, averages: Mapping[str, Mapping[str, float]], encoders: list[str]
) -> tuple[str, list[float]]:
    """The first average that all of them have; else the first similarity task that they do."""
    for name, values in averages.items():
        if all(math.isfinite(values.get(encoder, math.nan)) for encoder in encoders):
            return name, [values[encoder] for encoder in encoders]
    for task in comparison.groups().get("sts", []):
        cells = [comparison.cell(encoder, task) for encoder in encoders]
        found = [cell.value for cell in cells if cell is not None and math.isfinite(cell.value)]
        if len(found) == len(encoders):
            return f"{task}, {comparison.main_name(task)}", found
    return "", []


def _label_points(figure: Any, axes: Any, x: np.ndarray, y: np.ndarray, names: list[str]) -> None:
    """Names beside dots, each at the first place around its dot where it covers nothing."""
    figure.canvas.draw()
    figure.set_layout_engine("none")  # measured from here on
    renderer = figure.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    points = axes.transData.transform(np.column_stack([x, y]))  # (n, 2), pixels
    radius = 8 * figure.dpi / 72
    taken = [(px - radius, py - radius, px + radius, py + radius) for px, py in points]
    around = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)]
    for (px, py), name in zip(points, names, strict=True):
        best = None
        for reach in (11, 20, 32, 46):
            for across, up in around:
                text = axes.annotate(
                    name,
                    axes.transData.inverted().transform((px, py)),
                    (across * reach, up * reach),
                    textcoords="offset points",
                    ha={1: "left", -1: "right", 0: "center"}[across],
                    va={1: "bottom", -1: "top", 0: "center"}[up],
                    fontsize=9,
                    zorder=4,
                    arrowprops={"arrowstyle": "-", "color": "#AAAAAA"} if reach > 15 else None,
                )
                box = text.get_window_extent(renderer)
                edges = (box.x0, box.y0, box.x1, box.y1)
                inside = box.x0 >= frame.x0 and box.x1 <= frame.x1
                inside = inside and box.y0 >= frame.y0 and box.y1 <= frame.y1
                if inside and not any(_overlap(edges, other) for other in taken):
                    best = text
                    taken.append(edges)
                    break
                text.remove()
            if best is not None:
                break
        else:  # no room anywhere: better covered than absent
            axes.annotate(name, (x[names.index(name)], y[names.index(name)]), fontsize=9)


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
