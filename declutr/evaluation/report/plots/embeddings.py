"""Pictures of embeddings: alignment and uniformity, cosines of pairs, and maps of sentences."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.plots.style import COLOURS, new_figure, new_panels, shortened


def plane(comparison: Comparison, averages: Mapping[str, Mapping[str, float]]) -> Any:
    """Draw encoders as points by uniformity and alignment; None if no encoder has both scores.

    Uniformity is the horizontal axis, as in figure 2 of SCD (Klein and Nabi, 2022).

    # Parameters

    comparison : the results.
    averages : values by name of the average, then by encoder. Points are coloured by the first
        average that all encoders have, or else by such a similarity task.
    """
    at = {
        encoder: (scores["uniformity"], scores["alignment"])
        for encoder in comparison.encoders
        for scores in comparison.values(encoder).values()
        if "alignment" in scores and "uniformity" in scores
    }
    if not at:
        return None
    label, values = _colour_by(comparison, averages, list(at))
    figure = new_figure(6.6, 4.8)
    axes = figure.add_subplot()
    x, y = np.array(list(at.values())).T
    look = {"s": 110, "edgecolor": "#333333", "zorder": 3}
    if len(set(values)) > 1:
        dots = axes.scatter(x, y, c=values, cmap="viridis", linewidth=0.8, **look)
        bar = figure.colorbar(dots, ax=axes, pad=0.02, aspect=28)
        bar.set_label(label)
        bar.outline.set_visible(False)
    else:
        axes.scatter(x, y, color=COLOURS[0], **look)
    axes.margins(0.22)
    axes.set_xlabel("uniformity (lower: more evenly spread)")
    axes.set_ylabel("alignment (lower: the same meaning is closer)")
    axes.grid()
    _label_points(figure, axes, np.column_stack([x, y]), [shortened(name) for name in at])
    return figure


def _colour_by(
    comparison: Comparison, averages: Mapping[str, Mapping[str, float]], encoders: list[str]
) -> tuple[str, list[float]]:
    """Return the first average, or else similarity task, that all encoders have.

    # Returns

    Its name, and the values of the encoders; both empty if there is none.
    """
    readings = {name: [of.get(e, math.nan) for e in encoders] for name, of in averages.items()}
    for task in comparison.groups().get("sts", []):
        name = f"{task}, {comparison.main_name(task)}"
        readings[name] = [comparison.value(encoder, task) for encoder in encoders]
    complete = ((name, values) for name, values in readings.items() if np.isfinite(values).all())
    return next(complete, ("", []))


def _label_points(figure: Any, axes: Any, points: np.ndarray, names: list[str]) -> None:
    """Put names beside points, each at the first position around its point that is free."""
    from matplotlib.transforms import Bbox

    figure.canvas.draw()
    figure.set_layout_engine("none")  # positions are measured from here on, so they must not move
    renderer = figure.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    radius = 8 * figure.dpi / 72
    dots = axes.transData.transform(points)  # (n, 2), pixels
    taken = [Bbox([dot - radius, dot + radius]) for dot in dots]
    around = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)]
    for point, name in zip(points, names, strict=True):
        for reach, (across, up) in itertools.product((11, 20, 32, 46), around):
            text = axes.annotate(
                name,
                point,
                (across * reach, up * reach),
                textcoords="offset points",
                ha={1: "left", -1: "right", 0: "center"}[across],
                va={1: "bottom", -1: "top", 0: "center"}[up],
                fontsize=9,
                zorder=4,
                arrowprops={"arrowstyle": "-", "color": "#AAAAAA"} if reach > 15 else None,
            )
            box = text.get_window_extent(renderer)
            inside = frame.contains(*box.min) and frame.contains(*box.max)
            if inside and not any(box.fully_overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()
        else:  # no position is free, and an overlapping name is better than none
            axes.annotate(name, point, fontsize=9)


def similarities(comparison: Comparison, bins: int = 60) -> Any:
    """Draw the distribution of cosines for each degree of similarity; None without such scores.

    Each encoder has a panel, with a ridge for each degree of the gold scores.
    """
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
            fill = {"color": colours[row], "alpha": 0.85, "linewidth": 0, "zorder": 9 - row}
            axes.fill_between(centres, row, row + there, **fill)
            axes.plot(centres, row + there, color="white", linewidth=0.9, zorder=9 - row)
            median = np.median(here)
            axes.plot([median, median], [row, row + 0.28], color="#222222", zorder=10, lw=1.6)
        names = [f"{a:g}–{b:g}" for a, b in itertools.pairwise(steps)]
        axes.set_yticks(range(len(names)), names)
        axes.set(xlim=(edges[0], edges[-1]), ylim=(-0.15, len(names) + 0.75))
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_title(shortened(encoder))
    figure.supxlabel(f"cosine, pairs of {task}", fontsize=10, color="#333333")
    figure.supylabel("similarity that people gave", fontsize=10, color="#333333")
    return figure


def _similarity_task(
    comparison: Comparison,
) -> tuple[str, dict[str, tuple[np.ndarray, np.ndarray]]] | None:
    """Return the similarity task with cosines for the most encoders, then for the most pairs.

    The main score of such a task is computed from cosines.

    # Returns

    The name of the task, and cosines and gold scores by encoder; None if there is no such task.
    """
    found: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    for task in comparison.groups().get("sts", []):
        for encoder in comparison.encoders:
            score = comparison.score(encoder, task)
            if score and {"predicted", "gold"} <= set(score.items):
                cosines, gold = (score.items[n].astype(float) for n in ("predicted", "gold"))
                found.setdefault(task, {})[encoder] = (cosines, gold)

    def size(task: str) -> tuple[int, int]:
        return len(found[task]), max(len(cosines) for cosines, _ in found[task].values())

    best = max(found, key=size, default=None)
    return None if best is None else (best, found[best])


def _degrees(gold: np.ndarray) -> np.ndarray:
    """Return bounds of degrees: integers if gold scores span about 5 points, otherwise fifths."""
    low, high = float(gold.min()), float(gold.max())
    if 3 <= high - low <= 8:
        return np.arange(math.floor(low), math.ceil(high) + 1, dtype=float)
    return np.linspace(low, high if high > low else low + 1, 6)


def _smooth(counts: np.ndarray) -> np.ndarray:
    """Smooth counts with a narrow Gaussian kernel, reflected at both ends."""
    bell = np.exp(-0.5 * (np.arange(-4, 5) / 1.4) ** 2)
    return np.convolve(np.pad(counts, 4, mode="symmetric"), bell / bell.sum(), mode="valid")


def embedding_map(comparison: Comparison) -> Any:
    """Draw a map of sentences for each encoder that has one; None if there is none.

    The points are results of tasks of the group `map` (`declutr.evaluation.tasks.embedding_map`).
    """
    maps = {}
    for encoder in comparison.encoders:
        for task in comparison.tasks:
            record = comparison.record(encoder, task)
            if record and record.result.group == "map" and record.main is not None:
                maps[encoder] = record.main
    if not maps:
        return None
    figure, panels = new_panels(len(maps), width=3.7, height=3.5)
    labels = sorted({str(label) for score in maps.values() for label in score.items["label"]})
    colours = {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(labels)}
    for axes, (encoder, score) in zip(panels, maps.items(), strict=True):
        points = np.column_stack([score.items["x"], score.items["y"]])
        # Draw in random order, so that no class covers the others.
        order = np.random.default_rng(0).permutation(len(points))
        shown = [colours[str(label)] for label in score.items["label"][order]]
        axes.scatter(*points[order].T, s=11, c=shown, alpha=0.75, linewidth=0)
        axes.set(xticks=[], yticks=[])
        axes.margins(0.06)
        axes.set_title(f"{shortened(encoder, 22)} · {score.value:.0f} %")
        axes.spines[:].set(visible=True, color="#DDDDDD")
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=6, label=label, color=colour)
        for label, colour in colours.items()
    ]
    per_row = max(2, min(len(maps), 3) * 3)
    figure.legend(handles=handles, loc="outside lower center", ncols=min(per_row, len(labels)))
    return figure
