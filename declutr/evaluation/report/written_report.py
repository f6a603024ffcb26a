"""The report of a run, written into its folder and summarised on the terminal."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from declutr._version import __version__
from declutr.evaluation.report import page, plots
from declutr.evaluation.report.averages import Definition, averages
from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.contents import About
from declutr.evaluation.report.dimensions import by_family
from declutr.evaluation.report.exports import missing_for, write_tables
from declutr.evaluation.report.quoted import Quoted
from declutr.evaluation.report.report import Report
from declutr.evaluation.run import Run, failed, nothing_scored
from declutr.system import installed_versions
from declutr.system.files import write_whole

_LIBRARIES = ("torch", "numpy", "scikit-learn", "transformers", "sentence-transformers")


@dataclass(frozen=True)
class Wanted:
    """The files and the order that a report is to have besides its tables.

    # Parameters

    pictures : draw pictures, if matplotlib is installed.
    formats : formats of tables and pictures, among `declutr.evaluation.report.exports.FORMATS`.
    quoted : rows of papers' tables.
    rank_by : the definition of the score to order encoders by; None for no leaderboard.
    """

    pictures: bool = True
    formats: Sequence[str] = ()
    quoted: Sequence[Quoted] = ()
    rank_by: Definition | None = None


def write_report(
    run: Run,
    folder: Path,
    names: Sequence[str],
    truncated: Sequence[str],
    order: Sequence[str],
    data: str,
    wanted: Wanted,
) -> bool:
    """Write the report of a run, and return whether something went wrong.

    # Parameters

    run : the run, whose folder may also have results of earlier runs.
    folder : the folder to write to.
    names : names of the encoders of this run.
    truncated : names of their truncated encoders.
    order : names of all tasks, in the order of the report.
    data : the folder of the data, as the user gave it.
    wanted : what else the report has.
    """
    comparison, left_out = run.comparison(names, order)
    comparison, alone = by_family(comparison)
    left_out += alone
    hints = []
    if left_out:
        hints.append(
            f"{left_out} results in this folder are left out: they were made with another "
            "protocol, with data that has changed or cannot be read now, or by another encoder of "
            "the same name (leading dimensions: by one that has changed since)."
        )
    protocol = asdict(run.protocol)
    write(comparison, folder, data, protocol, hints, wanted, not_opened=run.not_opened)
    every = [*names, *truncated]
    if failed(comparison, every, run.not_opened):
        return True
    if not nothing_scored(comparison, every, [task.name for task in run.tasks]):
        return False
    print(
        "No task could be scored: there are no data for any of them. `declutr "
        f"evaluate-embeddings {shlex.quote(data)} --list` says what is missing.",
        file=sys.stderr,
    )
    return True


def write(
    comparison: Comparison,
    folder: Path,
    data: str,
    protocol: Mapping[str, Any],
    hints: Sequence[str],
    wanted: Wanted,
    **more: Any,
) -> None:
    """Write `report.md`, `report.html`, `results.json`, pictures and tables, and print a summary.

    # Parameters

    comparison : the results.
    folder : the folder to write to.
    data : where the data or the results are from.
    protocol : the settings of the results.
    hints : remarks for the user.
    wanted : what else the report has.
    more : further parameters of `Contents`.
    """
    hints = [*hints, *filter(None, [missing_for(wanted.formats)])]
    formats = [name for name in wanted.formats if name != "latex" or not missing_for(["latex"])]
    means = {name: averages(comparison.values(name)) for name in comparison.encoders}
    pictures: list[plots.Picture] = []
    if wanted.pictures and plots.available():
        by_name: dict[str, dict[str, float]] = {}
        for encoder, of_one in means.items():
            for mean in of_one:
                if mean.value is not None:
                    by_name.setdefault(mean.name, {})[encoder] = mean.value
        place, svg = folder / "plots", "svg" in formats
        pictures = plots.draw(comparison, place, by_name, wanted.quoted, svg)
    elif wanted.pictures:
        hints.append(f"No pictures. {plots.HOW_TO_GET}")
    if not page.available():
        hints.append(f"No page. {page.HOW_TO_GET}")
    versions = {"declutr": __version__, "python": platform.python_version()}
    versions |= installed_versions(*_LIBRARIES)
    versions["machine"] = f"{platform.machine()} with {os.cpu_count()} cores"
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    command = shlex.join(["declutr", *sys.argv[1:]])
    about = About(command, data, protocol, versions, now, hints)
    more |= {"quoted": wanted.quoted, "rank_by": wanted.rank_by}
    report = Report(comparison, means, about, pictures, folder, **more)
    markdown = report.markdown()
    write_whole(folder / "results.json", json.dumps(report.as_json(), indent=1, allow_nan=False))
    write_whole(folder / "report.md", markdown)
    written = [folder / "report.md"]
    if page.available():
        written.append(folder / "report.html")
        write_whole(written[-1], page.page(report, markdown))
    tables = write_tables(report, folder / "tables", formats)
    print("\n".join(["", *report.summary(), ""]))
    print(f"Report: {', '.join(map(str, written))}")
    if tables:
        print(f"Tables: {len(tables)} in {folder / 'tables'}")
