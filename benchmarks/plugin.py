"""What the plugin adds to the start of pipelines that name nothing of this package."""

from __future__ import annotations

import argparse
import random
import sys
from statistics import median

from benchmarks.results import record
from benchmarks.startup import LOAD, Command
from benchmarks.timing import compare
from declutr.bridge import PLUGIN_SWITCH

COMMANDS_OF_OURS = (
    "import declutr.plugin\n"
    "from allennlp.commands import Subcommand\n"
    "[Subcommand.by_name(name) for name in Subcommand.list_available()]"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", type=int, help="starts of each kind (default 20; quick 2)")


def run(args: argparse.Namespace) -> None:
    pairs = args.pairs or (2 if args.quick else 20)
    starts = {
        "the repairs of AllenNLP alone": (LOAD, "0"),
        "with the names of this package": (LOAD, "1"),
        "with its plugin imported, and all its commands": (f"{LOAD}\n{COMMANDS_OF_OURS}", "1"),
    }
    runs = {
        name: Command([sys.executable, "-c", code], {PLUGIN_SWITCH: value})
        for name, (code, value) in starts.items()
    }
    compare(runs, pairs)
    alone, *others = (command.cpu_seconds[1:] for command in runs.values())
    rows: list[dict[str, str | float]] = [
        {"start": next(iter(runs)), "processor seconds": median(alone)}
    ]
    for name, seconds in zip([*runs][1:], others, strict=True):
        more = [one - other for one, other in zip(seconds, alone, strict=True)]
        low, high = interval_of_median(more)
        told = f"{median(more):.3f} ({low:.3f} to {high:.3f})"
        rows.append({"start": name, "processor seconds": median(seconds), "more, s": told})
    record(
        "plugin",
        "What the plugin adds to the start of other pipelines",
        rows,
        settings={"pairs": pairs},
        note="Imports of `allennlp` and its plugins. Median differences of pairs in turns, with "
        "their 95 % intervals (bootstrap).",
    )


def interval_of_median(values: list[float], samples: int = 10_000) -> tuple[float, float]:
    """Return the bounds of the 95 % bootstrap interval of a median."""
    draw = random.Random(0)
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(samples))
    return medians[round(0.025 * samples)], medians[round(0.975 * samples) - 1]
