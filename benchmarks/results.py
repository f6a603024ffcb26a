"""Keeps what benchmarks found: `benchmarks/results/<name>.json`, a list of runs, oldest first.

The files are small and belong into the repository beside the tables made of them, so that every
published number says on which machine, with which versions and by which command it was measured.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.memory import ROOT

FOLDER = ROOT / "benchmarks" / "results"

Row = Mapping[str, Any]
"""Column headings (with their unit) to numbers or words. All rows of a run have the same keys."""


@dataclass(frozen=True)
class Plot:
    """A picture of the rows of one run; `report` draws it.

    Bars have one group for each value of column `x`, lines one point. A row without a number at
    `y` is left out.
    """

    file: str
    """Name of the picture, without a suffix."""
    title: str
    kind: str
    """"bars" or "lines"."""
    x: str
    """The column of categories (bars) or of positions (lines)."""
    y: str
    """The column of heights; it is the label of the axis too."""
    series: str | None = None
    """The column that tells bars of a group, or lines, from each other."""
    baseline: str | None = None
    """The series (of bars without `series`: the category) with which others are compared: each bar
    is labelled with its quotient to that one."""
    logarithmic: str = ""
    """The axes with a logarithmic scale: "x", "y" or "xy"; bars have no x."""


@dataclass(frozen=True)
class Run:
    """One run of one benchmark."""

    name: str
    title: str
    rows: Sequence[Row]
    note: str = ""
    """What a reader of the table must know."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    plots: Sequence[Plot] = ()
    date: str = ""
    command: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Run:
        """What `asdict` made of a run, read again."""
        return cls(**{**values, "plots": [Plot(**plot) for plot in values["plots"]]})


def record(
    name: str,
    title: str,
    rows: Sequence[Row],
    *,
    note: str = "",
    settings: Mapping[str, Any] | None = None,
    plots: Sequence[Plot] = (),
    processor: str | None = None,
    folder: Path = FOLDER,
) -> Path:
    """Append a run to `<name>.json`, with date, command and machine; returns the file.

    Args:
        name: of the benchmark, or of one of its tables.
        title: heading of the table.
        rows: see `Row`.
        note: a paragraph below the table.
        settings: what the run depended on; anything JSON can hold.
        plots: pictures of the rows.
        processor: its name, behind names and titles: table and pictures are kept beside those
            of other processors.
        folder: where the file lies.
    """
    if processor:
        mark, on = "_".join(["", *re.findall(r"\w+", processor.lower())]), f", {processor}"
        name, title = name + mark, title + on
        plots = [replace(plot, file=plot.file + mark, title=plot.title + on) for plot in plots]
    return keep(new_run(name, title, rows, note=note, settings=settings, plots=plots), folder)


def add_processor_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--processor`, for the argument of `record`."""
    parser.add_argument(
        "--processor",
        help='what to call this processor, as "Xeon with AMX": its tables are kept beside those of '
        "other processors (default: they replace those without a name)",
    )


def new_run(
    name: str,
    title: str,
    rows: Sequence[Row],
    *,
    note: str = "",
    settings: Mapping[str, Any] | None = None,
    plots: Sequence[Plot] = (),
    machine: Mapping[str, Any] | None = None,
) -> Run:
    """A run of now, by this command. `machine` is this one, unless it is given."""
    return Run(
        name=name,
        title=title,
        rows=rows,
        note=note,
        settings={key: _without_folders(value) for key, value in (settings or {}).items()},
        plots=plots,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=f"python -m benchmarks {shlex.join(map(_without_folders, sys.argv[1:]))}",
        machine=describe_machine() if machine is None else machine,
    )


def keep(run: Run, folder: Path = FOLDER) -> Path:
    """Append a run to the file of its name; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{run.name}.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    text = json.dumps([*known, asdict(run)], indent=1, default=str)
    partial = file.with_suffix(".partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(file)
    return file


def latest(folder: Path = FOLDER) -> list[Run]:
    """The newest run of every benchmark, by name."""
    return [Run.of(json.loads(file.read_text(encoding="utf-8"))[-1]) for file in _files(folder)]


def json_lines(file: Path) -> list[dict[str, Any]]:
    """Return the objects in a file of JSON lines; a line that was not written to its end is none.

    Without such a file there are none.

    Raises:
        ValueError: a line is no JSON, and not the beginning of an object either.
    """
    found = []
    texts = file.read_text(encoding="utf-8").split("\n") if file.exists() else []
    for number, text in enumerate(texts, 1):
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError as error:
            if text and not text.startswith('{"'):
                raise ValueError(
                    f"{file}:{number} has {text[:40]!r}. Expected an object of JSON in each line."
                ) from error
    return found


def _without_folders(given: Any) -> Any:
    """The name of a file by its absolute path: where it lay on this machine is of no use."""
    is_path = isinstance(given, str) and given.startswith("/")
    return Path(given).name if is_path else given


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))
