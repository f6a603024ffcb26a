"""What `static` found, and the tables made of it."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.results import Plot, Row, record
from benchmarks.rival_tables import threads_of
from benchmarks.rival_ways import BASELINE
from benchmarks.timing import Timing, ratio


@dataclass
class Found:
    """What was found of a way, besides its speed."""

    dtype: str
    """Of its table."""
    folder: Path
    """What it opens."""
    cosines: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """With the baseline's vectors of all texts, `(n,)`."""
    opened: float = 0.0
    """MiB after the first vector."""
    memory: float = 0.0
    """MiB at most, until all texts have been embedded."""
    processor_starts: list[float] = field(default_factory=list)
    """Processor seconds to the first vector, the first of a warm-up."""
    starts: list[float] = field(default_factory=list)
    """Seconds to the first vector, likewise."""
    first_passes: list[float] = field(default_factory=list)
    """Short texts a second right after that, likewise."""


def record_speed(
    args: argparse.Namespace,
    threads: int,
    timings: Mapping[str, Sequence[Timing]],
    counts: Mapping[str, int],
) -> None:
    """Record how fast all ways embedded all kinds of texts.

    Args:
        args: of the command.
        threads: of each way.
        timings: of all ways by kind of texts and calls, the baseline first.
        counts: of texts, likewise.
    """
    rows = [
        {
            "texts": call,
            "way": timing.name,
            "texts/s": counts[call] / timing.median,
            "µs a text": 1e6 * timing.median / counts[call],
            f"speed, {BASELINE} = 1": str(ratio(each[0], timing)),
        }
        for call, each in timings.items()
        for timing in each
    ]
    told = ", ".join(f"{count:,} {call}" for call, count in counts.items())
    title = f"Static encoders: texts a second, {threads_of(threads)}"
    record(
        f"static_{threads}",
        f"Static encoders against rivals, {threads_of(threads)}",
        rows,
        note=(
            "Tokenising, mean and scaling to length 1, of the same table in each tool's own folder "
            f"and with equal vectors. Texts a round, in turns: {told}; short: 5 to 15 words, "
            "mixed: 3 to 400, log-uniform, long: 200 to 900. Each way runs in a process of its own "
            f"that is held to {threads} of the cores, and has embedded these texts before (this "
            "package keeps tokens of words; the next table has its speed without them). model2vec "
            "cuts no texts here, and uses threads if it is given more than one."
        ),
        settings=vars(args),
        plots=[Plot(f"static_{threads}", title, "bars", "texts", "texts/s", "way", BASELINE, "y")],
    )


def record_the_rest(
    args: argparse.Namespace, shape: tuple[int, ...], found: Mapping[str, Found]
) -> None:
    """Record start-up, memory, size and agreement."""
    record(
        "static_rest",
        "Static encoders: start-up, memory, size",
        [_rest(name, each) for name, each in found.items()],
        note=(
            f"A table of {shape[0]:,} vectors of {shape[1]} numbers. The start is from that of the "
            "process to its first vector, imports included, the median of starts in turns; the "
            "first pass embeds the short texts of the table above right after it, none of them met "
            "before. Memory is what a process allocates beyond the bare interpreter, after the "
            "first vector and at most until it has embedded all texts, which it holds itself. "
            f"Cosines are with what {BASELINE} gives for the same text. model2vec's int8 has one "
            "step for all dimensions, this package's one for each."
        ),
        settings=vars(args),
    )


def _rest(name: str, found: Found) -> Row:
    def median(values: list[float]) -> float:
        return statistics.median(values[1:] or values)

    files = [file for file in found.folder.rglob("*") if file.is_file()]
    return {
        "way": name,
        "start, processor s": median(found.processor_starts),
        "start, s": median(found.starts),
        "short texts/s, first pass": median(found.first_passes),
        "MiB, started": found.opened,
        "MiB, at most": found.memory,
        "MB on disk": sum(file.stat().st_size for file in files) / 1e6,
        "lowest cosine": float(found.cosines.min()),
    }
