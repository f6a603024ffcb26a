"""RECLAIM on real tasks: the rows of the paper's tables, at several shares of the labels.

    python -m benchmarks reclaim_tasks --checkpoint FOLDER --evaluation FOLDER --output FOLDER

Each finished run is a line of `runs.jsonl` in the output folder. A command that was killed goes on
where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.reclaim_runs import ALONE, RECIPES, TASKS, outcome_in_fork, written
from benchmarks.results import Plot, record

FRACTIONS = 0.1, 1.0
ROWS = tuple(RECIPES)[:8]

_GRID = "task", "fraction", "row", "seed"
_SHARED = "rows", "test_rows", "steps", "learning_rate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    needed = parser.add_argument_group("needed (without them nothing is run)")
    needed.add_argument("--checkpoint", type=Path, help="a transformer's folder")
    needed.add_argument("--evaluation", type=Path, help="SentEval's data")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME")
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=RECIPES,
        default=list(ROWS),
        metavar="NAME",
        help=f"of {', '.join(RECIPES)} (default: the first eight)",
    )
    parser.add_argument("--fractions", nargs="+", type=float, default=list(FRACTIONS))
    parser.add_argument("--seeds", type=int, default=3, help="(default 3)")
    parser.add_argument("--rows", type=int, default=1600, help="of training data (default 1600)")
    parser.add_argument("--test-rows", type=int, default=500, help="(default 500)")
    parser.add_argument("--steps", type=int, default=100, help="of 32 texts (default 100)")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="(default 2e-3)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")
    parser.add_argument("--output", type=Path, help="keeps what is done; given again, goes on")
    parser.add_argument(
        "--share",
        metavar="I/N",
        help="run each Nth only, from the Ith on (1/2 and 2/2 beside each other, with the same "
        "--output; once more without it, to record)",
    )
    parser.add_argument(
        "--record-only", action="store_true", help="make the tables of what is finished"
    )


def run(args: argparse.Namespace) -> None:
    missing = [name for name in ("checkpoint", "evaluation") if getattr(args, name) is None]
    if missing:
        print(f"reclaim_tasks left out: it needs --{', --'.join(missing)}.")
        return
    if args.quick:
        args.tasks, args.seeds, args.steps = args.tasks[:1], 2, 20
    with tempfile.TemporaryDirectory() as scratch:
        output = args.output or Path(scratch)
        output.mkdir(parents=True, exist_ok=True)
        file, settings = output / "runs.jsonl", _settings(args)
        if not args.record_only:
            _run_missing(settings, file, args)
        if args.share is None:
            _record(_finished(file, settings), args)


def _settings(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return all that the outcome of each run depends on; one seed comes after the other."""
    shared = {name: getattr(args, name) for name in _SHARED}
    return [
        {"task": task, "fraction": fraction, "row": row, "seed": seed, **shared}
        | {"encoder": args.checkpoint.name}
        for seed in range(args.seeds)
        for task in args.tasks
        for fraction in args.fractions
        for row in args.methods
    ]


def _run_missing(settings: list[dict[str, Any]], file: Path, args: argparse.Namespace) -> None:
    import torch

    import declutr.plugin  # noqa: F401 - registers what the configuration names

    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # which it would say at each fork
    torch.set_num_threads(args.threads)
    sizes = args.rows, args.test_rows
    files = {task: written(task, args.evaluation, file.parent, *sizes) for task in args.tasks}
    first, every = map(int, args.share.split("/")) if args.share else (1, 1)
    done = _finished(file, settings)
    for setting in tqdm(settings[first - 1 :: every], unit="run"):
        if not any(_is_of(one, setting) for one in done):
            given = {**setting, "checkpoint": str(args.checkpoint.resolve())}
            found = outcome_in_fork(files[setting["task"]], given)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps({**setting, **found}) + "\n")


def _finished(file: Path, settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the finished runs among `settings`; a line that was not written to its end is none."""
    found = []
    for line in file.read_text(encoding="utf-8").split("\n") if file.exists() else []:
        try:
            one = json.loads(line)
        except json.JSONDecodeError:
            continue
        if any(_is_of(one, setting) for setting in settings):
            found.append(one)
    if file.exists() and not file.read_bytes().endswith(b"\n"):
        with file.open("a") as lines:  # what comes next begins a line
            lines.write("\n")
    return found


def _is_of(one: dict[str, Any], setting: dict[str, Any]) -> bool:
    return all(one.get(name) == value for name, value in setting.items())


# -------------------------------------------------------------------------------------- tables


def _record(done: list[dict[str, Any]], args: argparse.Namespace) -> None:
    if not done:
        print("reclaim_tasks: no run is finished yet, and nothing is recorded.")
        return
    places = [(fraction, row) for fraction in args.fractions for row in args.methods]
    note = (
        f"Of at most {args.rows:,} training rows the share with labels alone is used; at most "
        f"{args.test_rows:,} test rows. {args.steps} steps of 32 texts, learning rate "
        f"{args.learning_rate:g}, the whole encoder is trained; negatives, lambda and critic are "
        f"those of the recipes. Mean of {args.seeds} seeds (of weights, order and choice of "
        "labels, the same for all rows) and 95 % interval of Student's t, over seeds, with one "
        f"test set a task. {len(done)} of {len(_settings(args))} runs are finished."
    )
    settings = {name: getattr(args, name) for name in ("seeds", *_SHARED)}
    settings["encoder"] = args.checkpoint.name
    accuracies = [
        {"labels, %": f"{100 * fraction:g}", "row": row}
        | {task: interval(_of(done, "accuracy", task, fraction, row)) for task in args.tasks}
        for fraction, row in places
    ]
    record(
        "reclaim_tasks",
        "RECLAIM on real tasks: accuracy in %",
        accuracies,
        note=note,
        settings=settings,
    )
    gains = [_gains(done, fraction, row, args.tasks) for fraction, row in places if row != ALONE]
    record(
        "reclaim_ablation",
        "RECLAIM on real tasks: differences to the task alone",
        [one for one in gains if one["mean"] is not None],
        note=(
            "Of accuracies in %, pair by pair with the same task, share of labels and seed. All "
            "tasks: the mean and interval over the pairs of all tasks. Seconds are processor time "
            "of training, and memory the highest that a run added to its process; both are means "
            "over all tasks and seeds, in parentheses beside the task alone. " + note
        ),
        settings=settings,
        plots=[
            Plot(
                file="reclaim_tasks",
                title="Difference in accuracy to the task alone, mean of all tasks",
                kind="bars",
                x="row",
                y="mean",
                series="labels, %",
            )
        ],
    )


def _gains(
    done: list[dict[str, Any]], fraction: float, row: str, tasks: Sequence[str]
) -> dict[str, Any]:
    """Return a line of the table of differences."""
    pairs = {task: _paired(done, "accuracy", task, fraction, row) for task in tasks}
    every = [gain for gains in pairs.values() for gain in gains]
    line: dict[str, Any] = {"labels, %": f"{100 * fraction:g}", "row": row}
    line |= {task: interval(gains, sign="+") for task, gains in pairs.items()}
    line |= {"all tasks": interval(every, sign="+")}
    line |= {"mean": round(statistics.mean(every), 2) if every else None}
    for name, unit in (("seconds", "s"), ("memory_mb", "MB")):
        values = [one for task in tasks for one in _of(done, name, task, fraction, row)]
        more = [one for task in tasks for one in _paired(done, name, task, fraction, row)]
        line[unit] = f"{_mean(values)} ({_mean(more, '+')})"
    return line


def _of(done: list[dict[str, Any]], name: str, *place: Any) -> list[float]:
    """Return the values of a task, fraction and row, in order of seeds."""
    here = [one for one in done if tuple(one[key] for key in _GRID[:3]) == place]
    return [one[name] for one in sorted(here, key=lambda one: one["seed"])]


def _paired(
    done: list[dict[str, Any]], name: str, task: str, fraction: float, row: str
) -> list[float]:
    """Return the differences to the task alone, of the seeds that both have."""
    beside, alone = (
        {one["seed"]: one[name] for one in done if tuple(one[key] for key in _GRID[:3]) == place}
        for place in ((task, fraction, row), (task, fraction, ALONE))
    )
    return [beside[seed] - alone[seed] for seed in sorted(beside.keys() & alone.keys())]


def _mean(values: Sequence[float], sign: str = "") -> str:
    return f"{statistics.mean(values):{sign}.0f}" if values else "–"


def interval(values: Sequence[float], sign: str = "") -> str:
    """Write the mean of values and half of the 95 % interval of Student's t."""
    from scipy.stats import t as student_t

    if not values:
        return "–"
    mean = f"{statistics.mean(values):{sign}.1f}"
    if len(values) < 2:
        return mean
    quantile = float(student_t.ppf(0.975, len(values) - 1))
    return f"{mean} ± {quantile * statistics.stdev(values) / len(values) ** 0.5:.1f}"
