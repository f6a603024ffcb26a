"""Pictures of the study: gains over the start, scores over steps, alignment and uniformity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.report import COLOURS, picture
from benchmarks.study.tables import NAMES, Gain, Group, start_of

_PANEL = 1.45  # inches of width for a task
_LETTER = 0.078  # inches of width for a letter of a row's name


def gains(every: Sequence[Group], tasks: Sequence[str]) -> list[tuple[str, str, Gain]]:
    """Return what is drawn, of all with several seeds: name of the row, task and gain."""
    found = []
    every = [group for group in every if group.recipe is None or group.tells]
    trained = [group for group in every if group.recipe]
    several = {name: len({getattr(group, name) for group in trained}) > 1 for name in _NAMING}
    for group in trained:
        start = start_of(group, every)
        if start is None:
            continue
        parts = [getattr(group, name) for name in _NAMING if several[name]] or [group.row]
        for task in tasks:
            gain = group.gain(start, task)
            if gain is not None:
                found.append((", ".join(parts), NAMES.get(task, task), gain))
    return found


_NAMING = "corpus", "start", "row"


def draw_gains(drawn: Sequence[tuple[str, str, Gain]], title: str, file: Path) -> None:
    """Write a picture with a row for each encoder and a column for each task, as SVG.

    Raises:
        ModuleNotFoundError: without matplotlib.
    """
    rows = list(dict.fromkeys(name for name, _, _ in drawn))
    tasks = list(dict.fromkeys(task for _, task, _ in drawn))
    height = 1.3 + 0.24 * len(rows)
    width = 0.4 + _LETTER * max(map(len, rows)) + _PANEL * len(tasks)
    panels = {"ncols": len(tasks), "sharey": True, "squeeze": False}
    with picture(title, file, height, width, **panels) as ((*columns,),):
        for axes, task in zip(columns, tasks, strict=True):
            for name, of, gain in drawn:
                if of == task:
                    colour = COLOURS[3] if gain.certain else COLOURS[0]
                    errors = [[gain.value - gain.low], [gain.high - gain.value]]
                    place = rows.index(name)
                    axes.errorbar(gain.value, place, xerr=errors, fmt="o", ms=4, color=colour)
            axes.axvline(0, color="#333333", linewidth=0.8)
            axes.set_title(task, fontsize=10)
            axes.grid(axis="x", alpha=0.25)
        columns[0].set_yticks(range(len(rows)), rows)
        columns[0].invert_yaxis()
        columns[0].figure.supxlabel(
            "points above the start, with the 95 % interval over seeds and test items "
            "(blue: without 0)",
            fontsize=9,
        )


def draw_factors(
    every: Sequence[Group], tasks: Sequence[str], factors: Sequence[str], title: str, file: Path
) -> None:
    """Write a picture of the mean of tasks, a point for each row, at each value of each factor.

    Raises:
        ModuleNotFoundError: without matplotlib.
    """
    trained = [group for group in every if group.factors]
    means = [np.mean([group.mean(task) for task in tasks]) for group in trained]
    of_starts = [
        np.mean([group.mean(task) for task in tasks]) for group in every if group.recipe is None
    ]
    by_factor = {
        factor: list(dict.fromkeys(group.factors[factor] for group in trained))
        for factor in factors
    }
    widths = [0.6 + len(values) for values in by_factor.values()]
    panels = {"ncols": len(factors), "sharey": True, "squeeze": False, "width_ratios": widths}
    with picture(title, file, 3.6, 0.8 * sum(widths), **panels) as ((*columns,),):
        for axes, (factor, values) in zip(columns, by_factor.items(), strict=True):
            for group, mean in zip(trained, means, strict=True):
                at = values.index(group.factors[factor])
                axes.plot(at, mean, "o", ms=4, alpha=0.5, color=COLOURS[3])
            for at, value in enumerate(values):
                of_value = [
                    mean
                    for group, mean in zip(trained, means, strict=True)
                    if group.factors[factor] == value
                ]
                axes.plot([at - 0.25, at + 0.25], [np.median(of_value)] * 2, color=COLOURS[6])
            for of_start in of_starts:
                axes.axhline(of_start, color="#333333", linewidth=0.8)
            axes.set_xticks(range(len(values)), [str(value) for value in values])
            axes.set_xlim(-0.5, len(values) - 0.5)
            axes.set_title(factor, fontsize=10)
            axes.grid(axis="y", alpha=0.25)
        columns[0].set_ylabel("mean of the tasks")


def draw_curves(every: Sequence[Group], tasks: Sequence[str], file: Path) -> None:
    """Write a picture of scores over steps: the mean over seeds, and their range, as SVG.

    Raises:
        ModuleNotFoundError: without matplotlib.
    """
    trained = [group for group in every if group.recipe]
    names = [_of_curve(trained, task) for task in tasks]
    panels = {"ncols": len(tasks), "squeeze": False}
    with picture("Scores over steps", file, 4.6, 3.4 * len(tasks), **panels) as ((*columns,),):
        for axes, task, name in zip(columns, tasks, names, strict=True):
            for number, group in enumerate(trained):
                of_seeds = [
                    {record["step"]: record["scores"][name] for record in line["curve"]}
                    for line in group.lines
                ]
                steps = sorted(set.intersection(*map(set, of_seeds)))
                values = np.array([[scores[step] for step in steps] for scores in of_seeds])
                colour, dashes = COLOURS[number % len(COLOURS)], "-" if number < 10 else "--"
                label = group.row if axes is columns[0] else None
                axes.plot(steps, values.mean(0), dashes, color=colour, label=label)
                axes.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.15)
            axes.set_title(NAMES.get(task, task), fontsize=10)
            axes.set_xlabel("steps")
            axes.grid(alpha=0.25)
        columns[0].figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)


def _of_curve(trained: Sequence[Group], task: str) -> str:
    """Return the name of a task's main score in curves: TASK/SCORE."""
    main = next(iter(trained[0].lines[0]["scores"][task]))
    return f"{task}/{main}"


def draw_plane(every: Sequence[Group], file: Path) -> None:
    """Write a picture of alignment against uniformity, a point for each run, as SVG.

    Both are better the lower they are (Wang and Isola, 2020).

    Raises:
        ModuleNotFoundError: without matplotlib.
    """
    with picture("Alignment and uniformity", file, 4.2) as axes:
        for number, group in enumerate(every):
            found = [line["scores"]["geometry"] for line in group.lines]
            x, y = ([of[name] for of in found] for name in ("uniformity", "alignment"))
            label = group.start if group.recipe is None else group.row
            axes.plot(x, y, "o", color=COLOURS[(number + 3) % len(COLOURS)], label=label)
        axes.set(xlabel="uniformity (lower is better)", ylabel="alignment (lower is better)")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8)
