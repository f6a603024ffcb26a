"""A million lines through `declutr embed`: memory; and runs that are killed twice against runs that
are not, in turns."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.memory import run_and_watch
from benchmarks.results import record
from benchmarks.texts import corpus_file, lines
from benchmarks.timing import Timing, compare, ratio

_KILLS = 2
_SHARDS_BEFORE_KILL = 3
_SHARDS = 16
_LEAST_RATIO = 0.95
"""Of a killed run's time to an uninterrupted one's, for both do the same work: below it the machine
was disturbed, and the numbers tell nothing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="documents, one a line (default: docstrings)")
    parser.add_argument("--lines", type=int, default=1_000_000, help="(default 1,000,000)")
    parser.add_argument(
        "--few", type=int, default=100_000, help="to compare with (default 100,000)"
    )
    parser.add_argument("--timed", type=int, default=200_000, help="lines of timed runs (200,000)")
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each (default 3)")
    parser.add_argument("--words", type=int, default=6, help="of a line (default 6)")


def run(args: argparse.Namespace) -> None:
    if args.quick:
        args.lines, args.few, args.timed, args.rounds = 20_000, 5_000, 20_000, 1
    corpus = corpus_file(args.data)
    with tempfile.TemporaryDirectory(prefix="declutr-bulk-") as name:
        folder = Path(name)
        model = _model(corpus, folder)
        _record_killed(args, corpus, model, folder)
        _record_memory(args, corpus, model, folder)


def _record_memory(args: argparse.Namespace, corpus: Path, model: Path, folder: Path) -> None:
    rows = []
    for count in (args.few, args.lines):
        file = _lines(corpus, folder, count, args.words)
        peak = run_and_watch(_command(model, file, folder / f"watched-{count}"))
        rows.append(
            {
                "lines": count,
                "allocated, MiB": peak.private / 2**20,
                "resident, MiB": peak.resident / 2**20,
            }
        )
    record(
        "bulk",
        "Memory by number of lines",
        rows,
        note=f"`declutr embed`, lines of {args.words} words, a transformer of 2 layers of 64.",
        settings=vars(args),
    )


def _record_killed(args: argparse.Namespace, corpus: Path, model: Path, folder: Path) -> None:
    file = _lines(corpus, folder, args.timed, args.words)
    rows_a_shard = max(1, args.timed // _SHARDS)
    runs = [
        Runs(model, file, folder, rows_a_shard, kills=kills, name=name)
        for name, kills in (("uninterrupted", 0), (f"killed {_KILLS} times", _KILLS))
    ]
    whole, killed = compare({each.name: each for each in runs}, rounds=args.rounds, warmup=0)
    require_consistent(whole, killed, *runs)
    rows = [
        {
            "run": each.name,
            "lines": args.timed,
            "seconds": timing.median,
            "of its parts, s": " + ".join(f"{part:.1f}" for part in each.parts[-1]),
            "processor seconds": Timing("", each.processor_seconds).median,
            "lines/s": args.timed / timing.median,
            "time, uninterrupted = 1": str(ratio(timing, whole)),
        }
        for each, timing in zip(runs, (whole, killed), strict=True)
    ]
    record(
        "bulk_killed",
        "A run that is killed",
        rows,
        note=(
            f"`declutr embed` of the same lines in {_SHARDS} shards, in turns, {args.rounds} of "
            "each; start of the command included. A killed run was ended by SIGKILL "
            f"{_KILLS} times, each time after {_SHARDS_BEFORE_KILL} more shards, and begun again "
            "by the same command; its seconds are those of all parts together (the parts of the "
            "last turn stand beside them). All files of the two are equal."
        ),
        settings=vars(args),
    )


@dataclass
class Runs:
    """`declutr embed` into a new folder at each call, killed and begun again a number of times."""

    model: Path
    file: Path
    folder: Path
    shard_rows: int
    kills: int
    name: str
    parts: list[list[float]] = field(default_factory=list)
    """Seconds of each process of each call."""
    processor_seconds: list[float] = field(default_factory=list)
    """Of all processes of each call."""
    digests: list[str] = field(default_factory=list)
    """Of what each call wrote."""

    def __call__(self) -> None:
        output = self.folder / f"{self.kills}-kills-{len(self.parts)}"
        command = [*_command(self.model, self.file, output), "--shard-rows", str(self.shard_rows)]
        seconds: list[float] = []
        before, ended = os.times(), False
        while not ended:
            start = time.perf_counter()
            ended = _part(command, output, kill=len(seconds) < self.kills)
            seconds.append(time.perf_counter() - start)
        after = os.times()
        self.parts.append(seconds)
        self.processor_seconds.append(
            after.children_user + after.children_system
            - before.children_user - before.children_system
        )  # fmt: skip
        self.digests.append(_digest(output))


def require_consistent(whole: Timing, killed: Timing, *runs: Runs) -> None:
    """Refuse numbers that contradict each other.

    Raises:
        SystemExit: if runs differ in what they wrote, a run was not killed as often as it should
            have been, or killed runs are quicker than those that do the same work at one go.
    """
    if len({digest for each in runs for digest in each.digests}) != 1:
        raise SystemExit("The killed runs and the uninterrupted ones wrote different files.")
    for each in runs:
        if {len(parts) for parts in each.parts} != {each.kills + 1}:
            raise SystemExit(f"Runs {each.name} ended before they were killed; give more --timed.")
    processor = (Timing(each.name, each.processor_seconds) for each in runs)
    for of_what, (first, second) in {
        "time": (whole, killed),
        "processor time": tuple(processor),
    }.items():
        found = ratio(second, first)
        if found.median < _LEAST_RATIO:
            raise SystemExit(
                f"Killed runs took {found} of the {of_what} of uninterrupted ones, which do the "
                "same work. The machine was disturbed; nothing is recorded. Measure again."
            )


def _part(command: Sequence[str], output: Path, kill: bool) -> bool:
    """Run a command; kill it after some more shards if asked to. Whether it came to its end."""
    before = len(list(output.glob("embeddings-*.npy")))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while kill and process.poll() is None:
        time.sleep(0.05)
        if len(list(output.glob("embeddings-*.npy"))) >= before + _SHARDS_BEFORE_KILL:
            process.kill()
            break
    if process.wait() not in (0, -9):
        raise SystemExit(f"declutr embed ended with exit code {process.returncode}.")
    return process.returncode == 0


def _command(model: Path, file: Path, output: Path) -> list[str]:
    command = [sys.executable, "-m", "declutr", "embed", str(model), str(file), "-o", str(output)]
    return [*command, "--device", "cpu", "--dtype", "float32", "--quiet"]


def _digest(folder: Path) -> str:
    """Of all files, by name and content."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if not file.name.startswith(".") and not file.name.endswith(".lock"):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _lines(corpus: Path, folder: Path, count: int, words: int) -> Path:
    """`count` lines of `words` words, those of the corpus in order and again from the start."""
    file = folder / f"{count}.txt"
    stream = (word for _ in itertools.count() for line in lines(corpus) for word in line.split())
    with file.open("w", encoding="utf-8") as out:
        for _ in range(count):
            out.write(" ".join(itertools.islice(stream, words)) + "\n")
    return file


def _model(corpus: Path, folder: Path) -> Path:
    from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer

    tokenizer = train_tokenizer(itertools.islice(lines(corpus), 5000), 8000, max_length=128)
    place = folder / "model"
    make_checkpoint(place, tokenizer, layers=2, hidden_size=64, heads=2, max_length=128)
    return place
