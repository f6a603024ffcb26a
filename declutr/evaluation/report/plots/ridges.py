"""Cosines of pairs, for each degree of similarity that people gave."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.plots.style import new_panels, shortened


def similarities(comparison: Comparison, bins: int = 60) -> Any:
    """A panel for each encoder, a ridge of cosines for each degree of gold; none without them."""
    found = _similarity_task(comparison)
    if found is None:
        return None
    task, pairs = found
    figure, panels = new_panels(len(pairs), width=3.7, height=3.1)
    everything = np.concatenate([cosines for cosines, _ in pairs.values()])
    low = float(min(np.percentile(everything, 0.5), 0.0))
    edges = np.linspace(low, max(1.0, float(everything.max())), bins + 1)
    centres = (edges[1:] + edges[:-1]) / 2
    from matplotlib import colormaps

    for axes, (encoder, (cosines, gold)) in zip(panels, pairs.items(), strict=True):
        steps = _degrees(gold)
        colours = colormaps["viridis"](np.linspace(0.05, 0.85, len(steps) - 1))
        for row, (start, end) in enumerate(itertools.pairwise(steps)):
            last = row == len(steps) - 2
            here = cosines[(gold >= start) & ((gold <= end) if last else (gold < end))]
            if not len(here):
                continue
            height = _smooth(np.histogram(here, edges)[0].astype(float))
            height *= 1.6 / max(height.max(), 1e-12)
            there = np.where(height > 0.012, height, np.nan)
            axes.axhline(row, color="#D0D0D0", linewidth=0.7, zorder=1)
            axes.fill_between(
                centres,
                row,
                row + there,
                color=colours[row],
                alpha=0.85,
                linewidth=0,
                zorder=9 - row,
            )
            axes.plot(centres, row + there, color="white", linewidth=0.9, zorder=9 - row)
            median = np.median(here)
            axes.plot([median, median], [row, row + 0.28], color="#222222", zorder=10, lw=1.6)
        names = [f"{a:g}–{b:g}" for a, b in itertools.pairwise(steps)]
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-0.15, len(names) + 0.75)
        axes.set_xlim(edges[0], edges[-1])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_title(shortened(encoder))
    figure.supxlabel(f"cosine, pairs of {task}", fontsize=10, color="#333333")
    figure.supylabel("similarity that people gave", fontsize=10, color="#333333")
    return figure


def _similarity_task(
    comparison: Comparison,
) -> tuple[str, dict[str, tuple[np.ndarray, np.ndarray]]] | None:
    """The similarity task that most encoders, then most pairs, have cosines of.

    The main score of such a task is one of cosines.
    """
    best, most = None, (0, 0)
    for task in comparison.groups().get("sts", []):
        pairs = {}
        for encoder in comparison.encoders:
            record = comparison.record(encoder, task)
            items = record.main.items if record and record.main else {}
            if {"predicted", "gold"} <= set(items):
                cosines, gold = (np.asarray(items[n], dtype=float) for n in ("predicted", "gold"))
                pairs[encoder] = (cosines, gold)
        if pairs:
            rank = (len(pairs), max(len(cosines) for cosines, _ in pairs.values()))
            if rank > most:
                best, most = (task, pairs), rank
    return best


def _degrees(gold: np.ndarray) -> np.ndarray:
    """Bounds of degrees: whole numbers if gold scores go from about 0 or 1 to 5, else fifths."""
    low, high = float(gold.min()), float(gold.max())
    if 3 <= high - low <= 8:
        return np.arange(math.floor(low), math.ceil(high) + 1, dtype=float)
    return np.linspace(low, high if high > low else low + 1, 6)


def _smooth(counts: np.ndarray) -> np.ndarray:
    """Counts under a narrow bell; what it moves over the ends comes back in."""
    bell = np.exp(-0.5 * (np.arange(-4, 5) / 1.4) ** 2)
    return np.convolve(np.pad(counts, 4, mode="symmetric"), bell / bell.sum(), mode="valid")
