"""The summary at the top of `docs/BENCHMARKS.md`: the figures that most readers come for."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import Run

_ORIGINAL = "the original recipe with padding"
_PACKAGE = "sentence-transformers"
_LINES = (
    ("Training step on a CPU, float32", _ORIGINAL, "step", {"step": "ours float32"}),
    ("Training step on a CPU, bfloat16", _ORIGINAL, "step", {"step": "ours bfloat16"}),
    (
        *("Training step on one thread, float32", "release 1.5.0", "releases_speed"),
        {"what": "training step, float32", "threads": 1},
    ),
    (
        *("Embedding short texts on one thread, float32", _PACKAGE, "rivals_1"),
        {"texts": "short", "way": "declutr float32"},
    ),
    (
        *("Embedding long texts on one thread, float32", _PACKAGE, "rivals_1"),
        {"texts": "long", "way": "declutr float32"},
    ),
    (
        *("Embedding short texts by a static encoder on one thread", _PACKAGE, "static_1"),
        {"texts": "short", "way": "declutr float32"},
    ),
)
"""Of each line: what is compared, with what, the run that has it, and the row of that run."""


def summary(runs: Sequence[Run]) -> str:
    """Return a table of the main ratios of speed, with their ranges; "" if no run has one.

    A run that is not among `runs` leaves its line out.
    """
    by_name = {run.name: run for run in runs}
    lines = []
    for what, other, name, cells in _LINES:
        rows = by_name[name].rows if name in by_name else ()
        for row in [row for row in rows if cells.items() <= row.items()][:1]:
            ratio = next(value for column, value in row.items() if column.startswith("speed, "))
            lines.append(f"| {what} | {other} | {ratio} |\n")
    if not lines:
        return ""
    return "| | compared with | speed, that = 1 |\n| --- | --- | --- |\n" + "".join(lines)
