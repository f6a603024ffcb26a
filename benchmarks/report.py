"""Makes `docs/BENCHMARKS.md` and its pictures from the newest run of every benchmark."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu.tables import NAMES as GPU
from benchmarks.memory import ROOT
from benchmarks.results import FOLDER, Plot, Row, Run, latest
from benchmarks.summary import summary

_ORDER = (
    *GPU,
    "step",
    "agreement",
    "step_memory",
    "end_to_end",
    "caching",
    "scaling",
    "reader",
    "corpus",
    "embedding",
    "rivals_1",
    "rivals_2",
    "rivals_rest",
    "static_1",
    "static_2",
    "static_rest",
    "bulk",
    "bulk_killed",
    "objectives",
    "reclaim",
    "reclaim_precise",
    "reclaim_growth",
    "releases",
    "releases_speed",
    "startup",
)
"""Of the sections; others follow."""

OF_RESULTS = ("reclaim_tasks", "reclaim_ablation", "reclaim_claims")
"""Runs that are about quality: they are on the page of results."""

_TITLE = """# Benchmarks

*For those who choose tools or machines: how fast is declutr, and how much memory does it need?*
"""

_INTRODUCTION = """\
Seconds differ between machines, and on one machine from hour to hour. So what is compared here
took turns on one machine, and each ratio is the median of the turns' ratios, with the smallest and
the largest of them in parentheses. Under each table stand the date, the command and the machine.

This page is made from `benchmarks/results` by `python -m benchmarks report`; do not edit it. To
measure on your own machine: `python -m benchmarks all` (`--quick` for a first look, `--device cuda`
on a GPU, `NAME --help` for the options of one benchmark).
"""

_NOT_MEASURED = """## Not measured yet

These tables need a GPU and `python -m benchmarks gpu`:
"""

COLOURS = (
    *("#9aa5b1", "#c9b37e", "#7d9fc4", "#1f4e79", "#7a5195"),
    *("#4f9d8f", "#b0563b", "#5b5b5b", "#d08fb0", "#3c6e3c"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", default=str(FOLDER), help="folder of the JSON files")
    parser.add_argument("--output", default=str(ROOT / "docs"), help="folder (default docs)")
    parser.add_argument("--no-plots", action="store_true", help="tables only, without matplotlib")


def run(args: argparse.Namespace) -> None:
    runs = latest(Path(args.results))
    if not runs:
        raise FileNotFoundError(
            f"There are no results in {args.results}. Run `python -m benchmarks all --quick` first."
        )
    folder = Path(args.output)
    folder.mkdir(parents=True, exist_ok=True)
    if not args.no_plots:
        for found in runs:
            for plot in found.plots:
                (folder / "benchmarks").mkdir(exist_ok=True)
                draw(plot, found.rows, folder / "benchmarks" / f"{plot.file}.svg")
    file = folder / "BENCHMARKS.md"
    file.write_text(markdown(runs, pictures=not args.no_plots), encoding="utf-8")
    print(f"Wrote {file}")


def markdown(runs: Sequence[Run], pictures: bool = True) -> str:
    """Return the page: a summary, then one section for each run.

    A section has the run's pictures, its table, its note, and how it was measured.
    """
    parts = [_TITLE, summary(runs), _INTRODUCTION]
    known = {run.name for run in runs}
    for run in sorted(runs, key=_place):
        if run.name not in OF_RESULTS:
            parts += section(run, pictures)
    missing = [title for name, title in GPU.items() if name not in known]
    if missing:
        parts += [_NOT_MEASURED, "".join(f"- {title}\n" for title in missing)]
    return "\n".join(filter(None, parts))


def section(run: Run, pictures: bool = True) -> Iterator[str]:
    """Yield the paragraphs about a run."""
    yield f"## {run.title}\n"
    if pictures:
        yield from (f"![{plot.title}](benchmarks/{plot.file}.svg)\n" for plot in run.plots)
    yield table(run.rows)
    if run.note:
        yield f"{run.note}\n"
    yield f"<sub>{_provenance(run)}</sub>\n"


def _place(run: Run) -> tuple[int, str]:
    name = run.name
    # Of an earlier release, or of another processor: right after the others.
    if name.startswith(("gpu_", "rivals_", "releases_speed")):
        name = max((known for known in _ORDER if name.startswith(known)), key=len, default=name)
    return _ORDER.index(name) if name in _ORDER else len(_ORDER), run.name


def table(rows: Sequence[Row]) -> str:
    """A Markdown table of all that any row has; numbers to three digits."""
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    numeric = [all(_is_number(row.get(heading)) for row in rows) for heading in headings]
    lines = [
        headings,
        ["---:" if is_numeric else "---" for is_numeric in numeric],
        *([shown(row.get(heading)) for heading in headings] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def shown(value: Any) -> str:
    """Three significant digits and thousands separated; words as they are."""
    if value is None:
        return "–"
    if not _is_number(value):
        return str(value).replace("|", "\\|")
    if isinstance(value, int) or value == 0:
        return f"{value:,}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def draw(plot: Plot, rows: Sequence[Row], file: Path) -> None:
    """Write one picture as SVG.

    Raises:
        ModuleNotFoundError: without matplotlib.
    """
    drawn = [row for row in rows if _is_number(row[plot.y])]
    bars = len(drawn) if plot.kind == "bars" else 0
    height = max(3.6, 0.9 + 0.2 * bars)  # names of many bars want room
    with picture(plot.title, file, height) as axes:
        (_draw_bars if plot.kind == "bars" else _draw_lines)(axes, plot, drawn)


@contextmanager
def picture(
    title: str, file: Path, height: float, width: float = 7.2, **panels: Any
) -> Iterator[Any]:
    """Yield axes to draw on, in the style of all pictures; at the end, they are written as SVG.

    With `panels`, options of `pyplot.subplots`, these are an array of axes.

    Raises:
        ModuleNotFoundError: without matplotlib.
    """
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Pictures are drawn by matplotlib, which is not installed: pip install matplotlib, or "
            "use --no-plots."
        ) from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    options: Any = {
        "svg.hashsalt": file.stem,  # the same picture from the same numbers
        "svg.fonttype": "none",
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with pyplot.rc_context(options):
        figure, axes = pyplot.subplots(figsize=(width, height), layout="constrained", **panels)
        yield axes
        if panels:
            figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
        else:
            axes.set_title(title, loc="left", fontweight="bold")
        figure.savefig(file, metadata={"Date": None})
        pyplot.close(figure)


def _draw_bars(axes: Any, plot: Plot, rows: Sequence[Row]) -> None:
    """Horizontal bars, one group a category, the first on top."""
    groups = _unique(row[plot.x] for row in rows)
    series = _unique(row[plot.series] for row in rows) if plot.series else [None]
    values = {
        (row[plot.x], row[plot.series] if plot.series else None): float(row[plot.y]) for row in rows
    }
    width = 0.8 / len(series)
    for number, name in enumerate(series):
        for place, group in enumerate(groups):
            if (group, name) not in values:
                continue
            value = values[group, name]
            at = place + (number - (len(series) - 1) / 2) * width
            colour = COLOURS[number % len(COLOURS)] if plot.series else COLOURS[3]
            label = str(name) if plot.series and place == _first(groups, values, name) else None
            axes.barh(at, value, 0.9 * width, color=colour, label=label)
            base = values.get((group, plot.baseline) if plot.series else (plot.baseline, None))
            quotient = f"  ({shown(value / base)}×)" if base else ""
            axes.annotate(
                f" {shown(value)}{quotient}", (value, at), va="center", fontsize=8, color="#333333"
            )
    several = plot.series is not None
    names = [f"{plot.x}: {group}" if several else str(group) for group in groups]
    axes.set_yticks(range(len(groups)), names)
    axes.invert_yaxis()
    if "y" in plot.logarithmic:
        axes.set_xscale("log")
    axes.margins(x=0.18)
    axes.set_xlabel(plot.y)
    if several:
        axes.figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)


def _draw_lines(axes: Any, plot: Plot, rows: Sequence[Row]) -> None:
    """One line a series, over positions in order."""
    for number, name in enumerate(
        _unique(row[plot.series] for row in rows) if plot.series else [None]
    ):
        points = sorted(
            (float(row[plot.x]), float(row[plot.y]))
            for row in rows
            if plot.series is None or row[plot.series] == name
        )
        xs, ys = zip(*points, strict=True)
        colour = COLOURS[(number + 3) % len(COLOURS)]
        axes.plot(xs, ys, "o-", color=colour, label=None if name is None else str(name))
        for x, y in points:
            axes.annotate(
                shown(y), (x, y), (0, 6), textcoords="offset points", ha="center", fontsize=8
            )
    highest = max(float(row[plot.y]) for row in rows)
    if "x" in plot.logarithmic:
        axes.set_xscale("log")
    if "y" in plot.logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(top=2 * highest)
    else:
        axes.set_ylim(0, 1.2 * highest)
    axes.set(xlabel=plot.x, ylabel=plot.y)
    axes.grid(alpha=0.25)
    if plot.series:
        axes.legend(frameon=False, fontsize=8)


def _first(groups: Sequence[Any], values: dict[tuple[Any, Any], float], name: Any) -> int:
    """The place of the first group that has a bar of this series: it carries the legend."""
    return next(place for place, group in enumerate(groups) if (group, name) in values)


def _provenance(run: Run) -> str:
    machine = dict(run.machine)
    place = (
        f"{machine.get('cpu')}, {machine.get('cores')} cores, {machine.get('memory_gib')} GiB"
        + (f", {machine['gpu']}" if machine.get("gpu") else "")
    )
    versions = ", ".join(
        f"{name} {machine[name]}" for name in ("python", "torch", "transformers") if name in machine
    )
    return (
        f"{run.date[:10]}, `{run.command}`, {place}, {machine.get('threads')} threads, {versions}"
    )


def _unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
