"""Pictures of averages beside those that papers print."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from declutr.evaluation.report.plots.style import COLOURS, new_figure, shortened
from declutr.evaluation.report.quoted import Quoted

_QUOTED = {"color": "#DDDDDD", "hatch": "////", "edgecolor": "#999999"}


def published_bars(averages: Mapping[str, Mapping[str, float]], quoted: Sequence[Quoted]) -> Any:
    """Draw a panel for each average that both an own encoder and a paper have; None without any.

    # Parameters

    averages : values by name of the average, then by encoder.
    quoted : rows of papers, which are hatched in grey.
    """
    panels: dict[str, list[tuple[float, str, bool]]] = {}
    for name, own in averages.items():
        printed = {row.label: row.averages.get(name, math.nan) for row in quoted}
        theirs = [(value, label, True) for label, value in printed.items() if math.isfinite(value)]
        if own and theirs:
            ours = [(value, encoder, False) for encoder, value in own.items()]
            panels[name] = sorted([*ours, *theirs])
    if not panels:
        return None
    tall = [0.22 * len(rows) + 0.75 for rows in panels.values()]  # inches
    longest = max(len(shortened(label, 40)) for rows in panels.values() for _, label, _ in rows)
    left, width, height = 0.3 + 0.078 * longest, 7.8, sum(tall)
    figure, top = new_figure(width, height, layout="none"), height - 0.35
    for (name, rows), inches in zip(panels.items(), tall, strict=True):
        bars = inches - 0.75
        box = (left / width, (top - bars) / height, (width - left - 0.6) / width, bars / height)
        axes = figure.add_axes(box)
        for place, (value, _, of_paper) in enumerate(rows):
            look = _QUOTED if of_paper else {"color": COLOURS[0], "edgecolor": "white"}
            axes.barh(place, value, height=0.72, **look)
            axes.text(max(value, 0) + 0.8, place, f"{value:.2f}", va="center", fontsize=8)
        axes.set_yticks(range(len(rows)), [shortened(label, 40) for _, label, _ in rows])
        axes.set_ylim(-0.6, len(rows) - 0.4)
        axes.set_xlim(min(0.0, rows[0][0] * 1.1), 100)
        axes.tick_params(axis="y", length=0, labelsize=9)
        axes.set_title(shortened(name, 60))
        axes.grid(axis="x")
        top -= inches
    return figure
