"""Makes `docs/RESULTS.md` and its pictures from the finished runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.memory import ROOT
from benchmarks.report import OF_RESULTS, section, table
from benchmarks.results import latest
from benchmarks.study.grid import entries
from benchmarks.study.lines import Line, read_lines, texts_of_corpora, weights_of_starts
from benchmarks.study.pictures import (
    draw_curves,
    draw_factors,
    draw_gains,
    draw_plane,
    gains,
)
from benchmarks.study.tables import Group, comparisons, groups, table_rows

TEXT = ROOT / "benchmarks" / "study" / "text"
"""What is said about each part, written by hand: `PART.md`; `introduction.md` and `claims.md`."""

_TITLE = """# Results

*For those who ask whether it works: what does training gain over its start, and how sure is that?*
"""


def write_page(
    grid: Mapping[str, Any], runs: Path, output: Path, pictures: bool = True, text: Path = TEXT
) -> Path:
    """Write the page and its pictures; returns the file.

    Args:
        grid: of the study.
        runs: the folder of finished runs.
        output: the folder of the page; pictures come into `results` there.
        pictures: whether to draw them, which needs matplotlib.
        text: the folder of what is said about the parts.

    Raises:
        ValueError: runs on one corpus had different texts, or of one start different weights.
    """
    paragraphs = [_TITLE, _said(text, "introduction")]
    missing: dict[str, int] = {}
    lines = read_lines(runs)
    texts_of_corpora(lines), weights_of_starts(lines)  # that runs can be compared
    folder = output / "results" if pictures else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        paragraphs += _overview(grid, lines, folder)
    for part in grid["parts"]:
        wanted = entries(grid, part)
        found = groups(wanted, lines)
        if count := len(wanted) - sum(len(group.lines) for group in found):
            missing[part] = count
        if any(group.recipe for group in found):
            paragraphs += _section(grid["parts"][part], part, found, _said(text, part), folder)
    if claims := _said(text, "claims"):
        paragraphs += ["## Where the papers' claims hold\n", claims]
    of_reclaim = {run.name: run for run in latest() if run.name in OF_RESULTS}
    paragraphs += [part for name in OF_RESULTS for part in section(of_reclaim[name], pictures)]
    if missing:
        paragraphs.append(_not_run(grid, missing))
    file = output / "RESULTS.md"
    output.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(filter(None, paragraphs)), encoding="utf-8")
    return file


def _overview(grid: Mapping[str, Any], lines: Sequence[Line], folder: Path) -> Iterator[str]:
    """Draw the gains of some runs of several parts, which the grid names."""
    asked = grid.get("overview", {"rows": []})
    drawn = []
    for row in asked["rows"]:
        found = groups(entries(grid, row["part"]), lines)
        place = row["corpus"], row["start"]
        of_row = [
            group
            for group in found
            if (group.corpus, group.start) == place and group.row in (row["row"], "start")
        ]
        drawn += [(row["name"], task, gain) for _, task, gain in gains(of_row, asked["tasks"])]
    if drawn:
        draw_gains(drawn, asked["title"], folder / "overview.svg")
        yield f"![{asked['title']}: gains over the start](results/overview.svg)\n"


def _section(
    part: Mapping[str, Any], name: str, found: Sequence[Group], said: str, folder: Path | None
) -> Iterator[str]:
    yield f"## {part['title']}\n"
    yield said
    tasks = [task for task in part["tasks"] if task != "geometry"]
    if folder is not None:
        yield from _pictures(part, name, found, tasks, folder)
    compare = part.get("compare")
    if compare:
        yield table(comparisons(found, tasks, compare))
        yield "<details><summary>All runs</summary>\n"
    for corpus in dict.fromkeys(group.corpus for group in found):
        yield f"### On `{corpus}`\n"
        yield table(table_rows(found, corpus, tasks))
    if compare:
        yield "</details>\n"
    lines = [line for group in found for line in group.lines]
    yield f"<sub>{_provenance(name, lines)}</sub>\n"


def _pictures(
    part: Mapping[str, Any], name: str, found: Sequence[Group], tasks: Sequence[str], folder: Path
) -> Iterator[str]:
    title = part["title"]
    if "compare" in part:
        factors = list(dict.fromkeys(factor for factor, *_ in part["compare"]))
        draw_factors(found, tasks, factors, title, folder / f"{name}.svg")
        yield f"![{title}: all runs by each setting](results/{name}.svg)\n"
    elif drawn := gains(found, tasks):
        draw_gains(drawn, title, folder / f"{name}.svg")
        yield f"![{title}: gains over the start](results/{name}.svg)\n"
    if "curve" in part:
        draw_curves(found, part["curve"]["tasks"], folder / f"{name}-curves.svg")
        yield f"![{title}: scores over steps](results/{name}-curves.svg)\n"
    if "geometry" in part["tasks"]:
        draw_plane(found, folder / f"{name}-plane.svg")
        yield f"![{title}: alignment and uniformity](results/{name}-plane.svg)\n"


def _provenance(part: str, lines: Sequence[Line]) -> str:
    """Return the command, the dates, the releases and the machines of runs."""
    command = f"python -m benchmarks study --part {part} --corpus FOLDER --data FOLDER"
    days = sorted({line["date"][:10] for line in lines})
    releases = ", ".join(sorted({line["release"] for line in lines}))
    machines = sorted({_machine(line["machine"]) for line in lines})
    dates = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"`{command}`, {len(lines)} runs, {dates}, declutr {releases}; {'; '.join(machines)}"


def _machine(machine: Mapping[str, Any]) -> str:
    device = machine.get("gpu") or f"{machine['cpu']}, {machine['threads']} thread(s)"
    return f"{device}, python {machine['python']}, torch {machine['torch']}"


def _not_run(grid: Mapping[str, Any], missing: Mapping[str, int]) -> str:
    lines = ["## Runs that are not finished\n", "`python -m benchmarks study --list` names them.\n"]
    rows = [
        {"part": f"`{part}`", "about": grid["parts"][part]["title"], "runs": str(count)}
        for part, count in missing.items()
    ]
    return "\n".join([*lines, table(rows)])


def _said(folder: Path, name: str) -> str:
    file = folder / f"{name}.md"
    return file.read_text(encoding="utf-8") if file.exists() else ""
