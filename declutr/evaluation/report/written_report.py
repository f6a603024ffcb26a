"""The report of a run, written into its folder and summarised on the terminal."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from declutr._version import __version__
from declutr.evaluation.report import plots
from declutr.evaluation.report.averages import averages
from declutr.evaluation.report.contents import About
from declutr.evaluation.report.dimensions import by_family
from declutr.evaluation.report.report import Report
from declutr.evaluation.run import Run, failed, nothing_scored
from declutr.system import installed_versions
from declutr.system.files import write_whole

_LIBRARIES = ("torch", "numpy", "scikit-learn", "transformers", "sentence-transformers")


def write_report(
    run: Run,
    folder: Path,
    names: Sequence[str],
    truncated: Sequence[str],
    order: Sequence[str],
    data: str,
    pictured: bool,
) -> bool:
    """Write `report.md`, `results.json` and pictures, and return whether something went wrong.

    # Parameters

    run : the run, whose folder may also have results of earlier runs.
    folder : the folder to write to.
    names : names of the encoders of this run.
    truncated : names of their truncated encoders.
    order : names of all tasks, in the order of the report.
    data : the folder of the data, as the user gave it.
    pictured : draw pictures, if matplotlib is installed.
    """
    comparison, left_out = run.comparison(names, order)
    comparison, alone = by_family(comparison)
    left_out += alone
    means = {name: averages(comparison.values(name)) for name in comparison.encoders}
    hints = []
    if left_out:
        hints.append(
            f"{left_out} results in this folder are left out: they were made with another "
            "protocol, with data that has changed or cannot be read now, or by another encoder of "
            "the same name (leading dimensions: by one that has changed since)."
        )
    pictures: list[plots.Picture] = []
    if pictured and plots.available():
        by_name: dict[str, dict[str, float]] = {}
        for encoder, of_one in means.items():
            for mean in of_one:
                if mean.value is not None:
                    by_name.setdefault(mean.name, {})[encoder] = mean.value
        pictures = plots.draw(comparison, folder / "plots", by_name)
    elif pictured:
        hints.append(f"No pictures. {plots.HOW_TO_GET}")
    versions = {"declutr": __version__, "python": platform.python_version()}
    versions |= installed_versions(*_LIBRARIES)
    versions["machine"] = f"{platform.machine()} with {os.cpu_count()} cores"
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    command = shlex.join(["declutr", *sys.argv[1:]])
    about = About(command, data, asdict(run.protocol), versions, now, hints)
    report = Report(comparison, means, about, pictures, folder, run.not_opened)
    write_whole(folder / "results.json", json.dumps(report.as_json(), indent=1, allow_nan=False))
    write_whole(folder / "report.md", report.markdown())
    print("\n".join(["", *report.summary(), "", f"Report: {folder / 'report.md'}"]))
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
