"""A million lines through `declutr embed`: memory, and a run that is killed twice against one
that is not."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.memory import run_and_watch
from benchmarks.results import record
from benchmarks.texts import corpus_file, lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="documents, one a line (default: docstrings)")
    parser.add_argument("--lines", type=int, default=1_000_000, help="(default 1,000,000)")
    parser.add_argument(
        "--few", type=int, default=100_000, help="to compare with (default 100,000)"
    )
    parser.add_argument("--words", type=int, default=6, help="of a line (default 6)")


def run(args: argparse.Namespace) -> None:
    if args.quick:
        args.lines, args.few = 20_000, 5_000
    corpus = corpus_file(args.data)
    with tempfile.TemporaryDirectory(prefix="declutr-bulk-") as name:
        folder = Path(name)
        model = _model(corpus, folder)
        few, many = (_lines(corpus, folder, count, args.words) for count in (args.few, args.lines))
        rows = []
        for title, file in (("few", few), ("many", many)):
            start = time.perf_counter()
            peak = run_and_watch(_command(model, file, folder / title))
            seconds = time.perf_counter() - start
            rows.append(_row(file, seconds, peak.private, peak.resident, "–"))
        seconds, kills = _killed(model, many, folder / "killed", kills=2)
        same = _digest(folder / "killed") == _digest(folder / "many")
        rows.append(_row(many, seconds, None, None, "yes" if same else "NO"))
        record(
            "bulk",
            "A million lines",
            rows,
            note=(
                f"`declutr embed`, lines of {args.words} words, a transformer of 2 layers of 64, "
                f"start of the command included. The last run was ended by SIGKILL {kills} times, "
                "each time after some more shards, and begun again by the same command."
            ),
            settings=vars(args),
        )
        if not same:
            raise SystemExit("The killed run and the uninterrupted one differ.")


def _row(
    file: Path, seconds: float, private: int | None, resident: int | None, same: str
) -> dict[str, Any]:
    count = int(file.stem)
    return {
        "lines": count,
        "seconds": seconds,
        "lines/s": count / seconds,
        "allocated, MiB": None if private is None else private / 2**20,
        "resident, MiB": None if resident is None else resident / 2**20,
        "equal to the uninterrupted run": same,
    }


def _command(model: Path, file: Path, output: Path) -> list[str]:
    command = [sys.executable, "-m", "declutr", "embed", str(model), str(file), "-o", str(output)]
    return [*command, "--device", "cpu", "--dtype", "float32", "--quiet"]


def _killed(model: Path, file: Path, output: Path, kills: int) -> tuple[float, int]:
    """Seconds of all runs together, and how many kills there were."""
    start, done = time.perf_counter(), 0
    while True:
        process = subprocess.Popen(_command(model, file, output))
        before = len(list(output.glob("embeddings-*")))
        while done < kills and process.poll() is None:
            time.sleep(0.05)
            if len(list(output.glob("embeddings-*.npy"))) >= before + 3:
                process.kill()
                done += 1
                break
        if process.wait() == 0:
            return time.perf_counter() - start, done
        if process.returncode != -9:
            raise SystemExit(f"declutr embed ended with exit code {process.returncode}.")


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
    from declutr.checkpoints import make_checkpoint, train_tokenizer

    tokenizer = train_tokenizer(itertools.islice(lines(corpus), 5000), 8000, max_length=128)
    place = folder / "model"
    make_checkpoint(place, tokenizer, layers=2, hidden_size=64, heads=2, max_length=128)
    return place
