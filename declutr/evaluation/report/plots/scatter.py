"""Embeddings of labelled sentences in two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.plots.style import COLOURS, new_panels, shortened


def embedding_map(comparison: Comparison) -> Any:
    """A panel for each encoder that has a map; none without.

    It is the task of the group `map` (`declutr.evaluation.tasks.embedding_map`).
    """
    maps = {}
    for encoder in comparison.encoders:
        for task in comparison.tasks:
            record = comparison.record(encoder, task)
            if record and record.result.group == "map" and record.main is not None:
                maps[encoder] = (task, record.main)
    if not maps:
        return None
    figure, panels = new_panels(len(maps), width=3.7, height=3.5)
    labels = sorted({str(label) for _, score in maps.values() for label in score.items["label"]})
    for axes, (encoder, (_, score)) in zip(panels, maps.items(), strict=True):
        points = np.column_stack([score.items["x"], score.items["y"]])
        colours = [
            COLOURS[labels.index(str(label)) % len(COLOURS)] for label in score.items["label"]
        ]
        # In an order that is none of the labels', or the last would cover the others.
        order = np.random.default_rng(0).permutation(len(points))
        axes.scatter(*points[order].T, s=11, c=[colours[i] for i in order], alpha=0.75, linewidth=0)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.margins(0.06)
        axes.set_title(f"{shortened(encoder, 22)} · {score.value:.0f} %")
        for side in axes.spines.values():
            side.set_visible(True)
            side.set_color("#DDDDDD")
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=6, label=label, color=colour)
        for label, colour in zip(labels, COLOURS * (1 + len(labels) // len(COLOURS)), strict=False)
    ]
    per_row = max(2, min(len(maps), 3) * 3)
    figure.legend(handles=handles, loc="outside lower center", ncols=min(per_row, len(labels)))
    return figure
