"""RECLAIM on real tasks: the rows of the paper's tables, at several shares of the labels.

    python -m benchmarks reclaim_tasks --checkpoint FOLDER --evaluation FOLDER --output FOLDER

Each finished run is a line of `runs.jsonl` in the output folder. A command that was killed goes on
where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.reclaim_runs import RECIPES, TASKS, outcome_in_fork, written
from benchmarks.reclaim_tables import SHARED, record_tables
from benchmarks.results import json_lines

FRACTIONS = 0.1, 1.0
ROWS = tuple(RECIPES)[:8]


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
            record_tables(_finished(file, settings), len(settings), args)


def _settings(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return all that the outcome of each run depends on; one seed comes after the other."""
    shared = {name: getattr(args, name) for name in SHARED}
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
    if file.exists() and not file.read_bytes().endswith(b"\n"):
        with file.open("a") as lines:  # what comes next begins a line
            lines.write("\n")
    return [one for one in json_lines(file) if any(_is_of(one, setting) for setting in settings)]


def _is_of(one: dict[str, Any], setting: dict[str, Any]) -> bool:
    return all(one.get(name) == value for name, value in setting.items())
