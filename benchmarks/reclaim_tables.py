"""Tables of `reclaim_tasks`: accuracies, differences to the task alone, and the paper's claims."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from scipy.stats import t as student_t

from benchmarks.reclaim_runs import ALONE
from benchmarks.results import Plot, record

SHARED = "rows", "test_rows", "steps", "learning_rate"
"""Options that all runs of a grid share."""

CLAIMS = {
    "RECLAIM helps (table 1)": ("K = 100", ALONE, "+1.5"),
    "a small K helps less (table 5)": ("K = 100", "K = 1", "+1.1"),
    "so it does with K = 300 (table 5)": ("K = 300", ALONE, "+1.5"),
    "selected negatives beat those of the batch (table 5)": ("K = 100", "in-batch", "+1.7"),
    "RECLAIM beats vanilla contrastive learning (table 8)": ("K = 100", "80 %", "+0.6"),
    "the Lipschitz constraint helps (table 8)": ("80 % + Lipschitz", "80 %", "+0.2"),
    "selection helps (table 8)": ("K = 100", "80 % + Lipschitz", "+0.4"),
}
"""The two rows whose difference a claim is about, and that difference on SST-2 in the paper."""


def record_tables(done: list[dict[str, Any]], planned: int, args: argparse.Namespace) -> None:
    """Record accuracies, differences to the task alone and the paper's claims.

    Args:
        done: the finished runs, each with its setting and outcome.
        planned: the number of runs of the whole grid.
        args: the options of the command.
    """
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
        f"test set a task. {len(done)} of {planned} runs are finished."
    )
    settings = {name: getattr(args, name) for name in ("seeds", *SHARED)}
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
    _record_claims(_claims(done, args.fractions, args.tasks), note, settings)


def _record_claims(lines: list[dict[str, Any]], note: str, settings: dict[str, Any]) -> None:
    if lines:
        record(
            "reclaim_claims",
            "What holds of RECLAIM's claims",
            lines,
            note=(
                "Differences of accuracies in %, pair by pair with the same task, share of labels "
                "and seed: mean and 95 % interval over the pairs of all tasks, as if they were "
                "independent. A claim holds where the interval is above 0. The paper fine-tunes "
                "BERT-base on GLUE; its difference on SST-2 stands beside, of one run, without an "
                "interval. " + note
            ),
            settings=settings,
        )


def _claims(
    done: list[dict[str, Any]], fractions: Sequence[float], tasks: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a line for each claim and share of labels of which there are runs."""
    lines = []
    for claim, (row, to, of_paper) in CLAIMS.items():
        for fraction in fractions:
            pairs = [_paired(done, "accuracy", task, fraction, row, to) for task in tasks]
            gains = [gain for of_task in pairs for gain in of_task]
            if len(gains) > 1:
                half = half_interval(gains)
                line = {"claim": claim, "difference": f"{row} - {to}", "paper, SST-2": of_paper}
                line |= {"labels, %": f"{100 * fraction:g}", "here": interval(gains, "+")}
                lines.append(line | {"pairs": len(gains), "holds": _verdict(gains, half)})
    return lines


def _verdict(gains: Sequence[float], half: float) -> str:
    mean = statistics.mean(gains)
    if abs(mean) <= half:
        return "cannot be told"
    return "yes" if mean > 0 else "no, the opposite"


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
    here = [one for one in done if _place(one) == place]
    return [one[name] for one in sorted(here, key=lambda one: one["seed"])]


def _paired(
    done: list[dict[str, Any]], name: str, task: str, fraction: float, row: str, to: str = ALONE
) -> list[float]:
    """Return the differences to another row, by default the task alone, of the seeds of both."""
    one, other = (
        {run["seed"]: run[name] for run in done if _place(run) == (task, fraction, which)}
        for which in (row, to)
    )
    return [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]


def _place(run: dict[str, Any]) -> tuple[str, float, str]:
    return run["task"], run["fraction"], run["row"]


def _mean(values: Sequence[float], sign: str = "") -> str:
    return f"{statistics.mean(values):{sign}.0f}" if values else "–"


def interval(values: Sequence[float], sign: str = "") -> str:
    """Write the mean of values and half of the 95 % interval of Student's t."""
    if not values:
        return "–"
    mean = f"{statistics.mean(values):{sign}.1f}"
    return mean if len(values) < 2 else f"{mean} ± {half_interval(values):.1f}"


def half_interval(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of Student's t of the mean of at least two values."""
    quantile = float(student_t.ppf(0.975, len(values) - 1))
    return quantile * statistics.stdev(values) / len(values) ** 0.5
