"""Static encoders against sentence-transformers' StaticEmbedding and model2vec, on the same table.

    python -m benchmarks static --threads 1 2 --model2vec FOLDER --data CORPUS

model2vec is looked for in that folder (`pip install --no-deps --target`) if it is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import static_folders
from benchmarks.memory import ROOT
from benchmarks.rival_quality import require_alike
from benchmarks.rival_ways import BASELINE, has_package, path_of
from benchmarks.static_tables import Found, record_speed, record_the_rest
from benchmarks.static_texts import made_table, passages
from benchmarks.texts import corpus_file
from benchmarks.timed_process import TimedProcess
from benchmarks.timing import compare
from declutr.archives.static_folder import DTYPES, StaticTable, read_static, write_static
from declutr.evaluation.tasks.relatedness import cosines

_COUNTS = {"short": 1.0, "mixed": 0.1, "long": 0.03, "few": 0.1}  # shares of --texts
_CALLS: dict[str, tuple[str, int | None]] = {
    "short": ("short", None),
    "mixed": ("mixed", None),
    "long": ("long", None),
    "short, 32 a call": ("few", 32),
    "short, 1 a call": ("few", 1),
}
"""The kind of texts, and how many of them a call embeds; `None` for all."""


@dataclass(frozen=True)
class StaticWay:
    """A tool with the folder that it opens."""

    opener: str
    """A key of `timed_worker.OPENERS`."""
    folder: Path
    dtype: str
    path: tuple[Path, ...] = ()
    """Where Python looks for packages before all other places."""
    batch_size: int = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--table", help="a static encoder; by default one is made of the corpus")
    parser.add_argument("--vocabulary", type=int, default=30_000, help="of it (default 30,000)")
    parser.add_argument("--dimension", type=int, default=256, help="of it (default 256)")
    parser.add_argument("--data", help="documents, one a line (default: docstrings)")
    parser.add_argument(
        "--texts",
        type=int,
        default=20_000,
        help="short texts a round; a tenth as many mixed ones and others for small calls, and 3 %% "
        "as many long ones (default 20,000)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each (default 5)")
    parser.add_argument("--starts", type=int, default=3, help="starts of each (default 3)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="(default 1)")
    parser.add_argument("--model2vec", help="a folder to find model2vec in")


def run(args: argparse.Namespace) -> None:
    if args.quick:
        args.texts, args.rounds, args.starts = min(args.texts, 500), 1, 1
        args.vocabulary, args.dimension = min(args.vocabulary, 2000), min(args.dimension, 32)
    corpus = corpus_file(args.data)
    place = Path(args.table or made_table(corpus, args.vocabulary, args.dimension))
    # Scaling to length 1 belongs to what users of static encoders ask for.
    table = replace(read_static(place), normalizes=True)
    counts = {kind: max(2, round(share * args.texts)) for kind, share in _COUNTS.items()}
    texts = passages(corpus, table, counts)
    with tempfile.TemporaryDirectory(prefix="declutr-static-") as name:
        rivals = _Rivals(args, Path(name), static_ways(args, table, Path(name)), texts)
        for threads in args.threads:
            rivals.compare(threads)
        record_the_rest(args, table.vectors.shape, rivals.found)


def static_ways(args: argparse.Namespace, table: StaticTable, folder: Path) -> dict[str, StaticWay]:
    """By name, the baseline first, each with a folder written for it."""
    for dtype in DTYPES:
        write_static(table, folder / "declutr" / dtype, dtype)
    tools, path = [BASELINE], path_of(args.model2vec)
    if has_package("model2vec", args.model2vec):
        tools.append("model2vec")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    source = folder / "declutr" / "float32"
    command = [sys.executable, static_folders.__file__, str(source), str(folder), *tools]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"Writing the folders of {tools} failed:\n{done.stderr[-3000:]}")
    of_theirs, of_model2vec = folder / BASELINE, folder / "model2vec"
    ways = {
        BASELINE: StaticWay(BASELINE, of_theirs / "float32", "float32"),
        f"{BASELINE}, batches of 1,024": StaticWay(
            BASELINE, of_theirs / "float32", "float32", batch_size=1024
        ),
        f"{BASELINE} float16": StaticWay(
            BASELINE, of_theirs / "float16", "float16", batch_size=1024
        ),
    }
    if "model2vec" in tools:
        for dtype in DTYPES:
            name = f"model2vec {dtype}"
            ways[name] = StaticWay("model2vec", of_model2vec / dtype, dtype, path)
    for dtype in DTYPES:
        place = folder / "declutr" / dtype
        ways[f"declutr {dtype}"] = StaticWay("declutr static", place, dtype, (ROOT,))
    return ways


class _Rivals:
    """The ways, and what has been found of them so far."""

    def __init__(
        self,
        args: argparse.Namespace,
        folder: Path,
        ways: Mapping[str, StaticWay],
        texts: Mapping[str, list[str]],
    ) -> None:
        self._args, self._folder, self._ways, self._texts = args, folder, ways, texts
        self.found = {name: Found(way.dtype, way.folder) for name, way in ways.items()}
        self._baseline: dict[str, np.ndarray] = {}
        self._file = folder / "texts.json"
        self._file.write_text(json.dumps(texts), encoding="utf-8")

    def compare(self, threads: int) -> None:
        """Time all ways with so many threads, and record their speeds.

        Raises:
            ValueError: if a way in float32 gives other vectors than the baseline.
        """
        if threads == self._args.threads[0]:
            for name in [*self._ways] * (self._args.starts + 1):  # the first is a warm-up
                self._look_at_start(name, threads)
        with ExitStack() as stack:
            opened = {}
            for name in self._ways:
                opened[name] = stack.enter_context(closing(self._started(name, threads, True)))
                self._look_at(name, opened[name], threads)
            timings = {
                call: compare(
                    {
                        name: partial(process.seconds, kind, size=size)
                        for name, process in opened.items()
                    },
                    rounds=self._args.rounds,
                )
                for call, (kind, size) in _CALLS.items()
            }
        counts = {call: len(self._texts[kind]) for call, (kind, _) in _CALLS.items()}
        record_speed(self._args, threads, timings, counts)

    def _started(self, name: str, threads: int, watch: bool = False) -> TimedProcess:
        way = self._ways[name]
        settings = {
            "what": way.opener,
            "model": str(way.folder),
            "batch_size": way.batch_size,
            "threads": threads,
            "texts": str(self._file),
        }
        return TimedProcess(settings, way.path, self._folder, watch)

    def _look_at_start(self, name: str, threads: int) -> None:
        """Seconds to a first vector, and those to embed all short texts once after it."""
        with closing(self._started(name, threads)) as process:
            found = self.found[name]
            found.processor_starts.append(process.told["processor_seconds"])
            found.starts.append(process.seconds_to_first)
            found.first_passes.append(len(self._texts["short"]) / process.seconds("short"))

    def _look_at(self, name: str, process: TimedProcess, threads: int) -> None:
        """Memory of a way that embeds everything once, and its vectors."""
        found = self.found[name]
        opened = process.peak
        vectors = {kind: self._vectors(process, kind) for kind in self._texts}
        if threads == self._args.threads[0]:
            found.opened, found.memory = opened / 2**20, process.peak / 2**20
        process.stop_watching()
        if not self._baseline:
            self._baseline = vectors
        each = {kind: cosines(vectors[kind], self._baseline[kind]) for kind in vectors}
        if found.dtype == "float32":
            for kind, values in each.items():
                require_alike(f"{name} and {BASELINE}", values, self._texts[kind])
        found.cosines = np.concatenate([*each.values()])

    def _vectors(self, process: TimedProcess, kind: str) -> np.ndarray:
        file = self._folder / "vectors.npy"
        process.seconds(kind, save=file)
        return np.load(file)
