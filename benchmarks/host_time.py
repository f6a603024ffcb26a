"""Host time of a training step, its kernels computing nothing, against the padded reference."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.host_loops import BARE
from benchmarks.machine import release_of
from benchmarks.memory import ROOT, in_fresh_process
from benchmarks.results import record
from benchmarks.timing import Timing, ratio

REFERENCE = "reference"
_WAYS = (REFERENCE, "reference, one pass", "reference, foreach", "ours, packed", "ours, grouped")
_CODE = (
    "import sys, benchmarks; benchmarks.__path__.append(sys.argv[1]); "
    "from benchmarks.host_steps import main; main(sys.argv[2], int(sys.argv[3]))"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=12, help="of the transformer (default 12)")
    parser.add_argument("--rounds", type=int, default=20, help="of all in turns (default 20)")
    parser.add_argument("--earlier", help="a checkout of an earlier release, to take its turns")


def run(args: argparse.Namespace) -> None:
    layers, rounds = (2, 3) if args.quick else (args.layers, args.rounds)
    with ExitStack() as stack:
        workers = {way: stack.enter_context(_Worker(way, layers)) for way in _WAYS}
        if args.earlier:
            for way in ("ours, packed", "ours, grouped"):
                worker = _Worker(way, layers, Path(args.earlier))
                workers[f"{way}, {release_of(Path(args.earlier))}"] = stack.enter_context(worker)
        timings = _in_turns(workers, rounds)
        operators = {name: worker.ask("operators") for name, worker in workers.items()}
        parts = {
            name: workers[name].ask(f"parts {2 * rounds}")
            for name in (REFERENCE, "reference, one pass", "ours, packed")
        }
    settings = {"layers": layers, "rounds": rounds}
    _record_steps(timings, operators, settings)
    _record_parts(parts, settings)
    loops, _ = in_fresh_process(
        "benchmarks.host_loops.measure", {"layers": layers, "steps": 200, "rounds": rounds}
    )
    _record_loops(loops, settings)


class _Worker:
    """A process that takes steps of one way on demand; `checkout` is where its declutr lies."""

    def __init__(self, way: str, layers: int, checkout: Path = ROOT) -> None:
        # What an earlier release has not, it takes from here.
        command = [sys.executable, "-c", _CODE, str(ROOT / "benchmarks"), way, str(layers)]
        self._process = subprocess.Popen(
            command,
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._name = f"{way} in {checkout}"

    def __enter__(self) -> _Worker:
        self._answer("ready")
        return self

    def __exit__(self, *error: Any) -> None:
        self._process.terminate()
        self._process.wait()

    def ask(self, question: str) -> Any:
        """The answer to a command of `benchmarks.host_steps`."""
        assert self._process.stdin is not None
        print(question, file=self._process.stdin, flush=True)
        return json.loads(self._answer("[{"))

    def _answer(self, begins_with: str) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line[0] in begins_with:
                return line
        raise RuntimeError(
            f"The process of '{self._name}' ended. Run it by hand to see why: {_CODE}"
        )


def _in_turns(workers: dict[str, _Worker], rounds: int) -> list[Timing]:
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    for _ in tqdm(range(rounds), "steps in turns", unit="round"):
        for name, worker in workers.items():
            seconds[name].append(min(worker.ask("steps 5")))
    return [Timing(name, taken) for name, taken in seconds.items()]


def _record_steps(
    timings: list[Timing], operators: dict[str, dict[str, int]], settings: dict[str, Any]
) -> None:
    by_name = {timing.name: timing for timing in timings}
    rows = [
        {
            "step": name,
            "host, ms a step": timing.median * 1e3,
            "times the padded reference": str(ratio(timing, by_name[REFERENCE])),
            "times the reference in one pass": str(ratio(timing, by_name["reference, one pass"])),
            "operators a step": sum(operators[name].values()),
        }
        for name, timing in by_name.items()
    ]
    record(
        "host_time",
        "Host time of a training step",
        rows,
        note=(
            "CPU time of one thread for a step with bfloat16, dropout, clipping and AdamW, where "
            "kernels compute nothing and are chosen as on a GPU (`benchmarks/stubbed_kernels.py`): "
            "what the host does before a GPU may begin. Ways take their turns; a round is the "
            "best of five steps, numbers are medians of rounds. The reference is the original "
            "recipe with torch's fused AdamW, a pass for anchors and one for positives; in one "
            "pass it has as many calls of layers as ours. Operators are those that torch "
            "dispatches, views left out. Not in it: what a batch remembers on the host of what is "
            "on a GPU, about 0.2 ms a step, and page-locked memory for it."
        ),
        settings=settings,
    )


def _record_parts(parts: dict[str, dict[str, float]], settings: dict[str, Any]) -> None:
    names = {name: None for taken in parts.values() for name in taken}
    rows = [
        {"part": name, **{f"{way}, ms": taken.get(name, 0.0) * 1e3 for way, taken in parts.items()}}
        for name in sorted(names, key=lambda name: -parts["ours, packed"].get(name, 0.0))
    ]
    totals = {f"{way}, ms": sum(taken.values()) * 1e3 for way, taken in parts.items()}
    record(
        "host_time_parts",
        "Where the host time of a step goes",
        [*rows, {"part": "sum", **totals}],
        note="Parts do not include each other; looking at the clock adds some percent to the sum.",
        settings=settings,
    )


def _record_loops(loops: dict[str, list[float]], settings: dict[str, Any]) -> None:
    timings = [Timing(name, seconds) for name, seconds in loops.items()]
    (bare,) = (timing for timing in timings if timing.name == BARE)
    record(
        "host_time_loops",
        "Host time of the loop around a step",
        [
            {
                "loop": timing.name,
                "host, ms a step": timing.median * 1e3,
                "more than a bare loop, ms a step": (timing.median - bare.median) * 1e3,
            }
            for timing in timings
        ],
        note=(
            "A model with the parameters of the transformer that does nothing, in epochs of 200 "
            'steps, in turns. The bare loop clips and steps as well. The trainer "declutr" '
            "reads losses every 10 steps, as on a GPU."
        ),
        settings=settings,
    )
