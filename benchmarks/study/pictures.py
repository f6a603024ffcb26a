"""Pictures of gains over the start: a point and its 95 % interval for each measure and corpus."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import COLOURS, picture
from benchmarks.study.tables import NAMES, Gain, Group, start_of


def gains(every: Sequence[Group], tasks: Sequence[str]) -> list[tuple[str, str, Gain]]:
    """Return what is drawn, of all with several seeds: name of the series, task and gain."""
    found = []
    every = [group for group in every if group.recipe is None or len(group.lines) > 1]
    several = len({group.start for group in every if group.recipe}) > 1
    rows = len({group.row for group in every if group.recipe}) > 1
    for group in every:
        start = start_of(group, every)
        if start is None:
            continue
        parts = [group.corpus, *([group.start] * several), *([group.row] * rows)]
        for task in tasks:
            gain = group.gain(start, task)
            if gain is not None:
                found.append((", ".join(parts), NAMES.get(task, task), gain))
    return found


def draw_gains(drawn: Sequence[tuple[str, str, Gain]], title: str, file: Path) -> None:
    """Write the picture as SVG.

    Raises:
        ModuleNotFoundError: without matplotlib.
    """
    series = list(dict.fromkeys(name for name, _, _ in drawn))
    tasks = list(dict.fromkeys(task for _, task, _ in drawn))
    height = max(3.6, 1.2 + 0.2 * len(series) * len(tasks))
    with picture(title, file, height) as axes:
        for number, name in enumerate(series):
            points = [(tasks.index(task), gain) for one, task, gain in drawn if one == name]
            _draw_series(axes, points, number, len(series), name)
        axes.axvline(0, color="#333333", linewidth=0.8)
        axes.set_yticks(range(len(tasks)), tasks)
        axes.invert_yaxis()
        axes.set_xlabel("points above the start, with the 95 % interval over seeds and test items")
        axes.grid(axis="x", alpha=0.25)
        axes.figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)


def _draw_series(
    axes: Any, points: Sequence[tuple[int, Gain]], number: int, series: int, name: str
) -> None:
    places = [at + (number - (series - 1) / 2) * 0.8 / series for at, _ in points]
    values = [gain.value for _, gain in points]
    errors = [
        [gain.value - gain.low for _, gain in points],
        [gain.high - gain.value for _, gain in points],
    ]
    colour = COLOURS[(number + 3) % len(COLOURS)]
    axes.errorbar(values, places, xerr=errors, fmt="o", color=colour, capsize=2, label=name)
