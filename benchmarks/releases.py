"""This checkout against one of an earlier release: what every run pays, training steps, embedding.

    git worktree add ../earlier v1.5.0 && python -m benchmarks releases --earlier ../earlier

Both run in the same environment, in turns, each in processes of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.machine import release_of
from benchmarks.memory import ROOT
from benchmarks.release_speed import add_speed_arguments, record_speed
from benchmarks.results import record
from benchmarks.timing import Timing, ratio

_PREPARE = """
import os
from allennlp.commands.train import train_model
from allennlp.common import Params
import declutr.plugin
from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer
texts = open("corpus.txt").read(1_000_000).splitlines()
make_checkpoint("transformer", train_tokenizer(texts, 4000), layers={layers},
                hidden_size=1024, heads=16, intermediate_size=4096)
os.environ["TRANSFORMER_MODEL"] = "transformer"
train_model(Params.from_file("{recipe}"), "run")
"""

# Each prints the seconds that count; imports do not, where they are not what is measured.
_PARTS = {
    "opening an archive": """
import declutr.plugin
from declutr import Encoder
began = time.perf_counter()
Encoder("run/model.tar.gz", device="cpu", dtype="float32")
""",
    "opening a folder": """
import declutr.plugin
from declutr import Encoder
began = time.perf_counter()
Encoder("run", device="cpu", dtype="float32")
""",
    "writing a checkpoint": """
import shutil, torch, declutr.plugin
from types import SimpleNamespace
from allennlp.training.trainer import TrainerCheckpoint
from declutr.training.checkpointer import AtomicCheckpointer
weights = torch.load("run/best.th", weights_only=True)
moments = {k: (v.float() * 2, v.float() * 3) for k, v in weights.items()}
done = {"epochs_completed": 1, "batches_in_epoch_completed": 0, "optimizer": moments}
trainer = SimpleNamespace(get_checkpoint_state=lambda: TrainerCheckpoint(weights, done))
folder = tempfile.mkdtemp(dir=".")
checkpointer = AtomicCheckpointer(folder)
os.sync()
began = time.perf_counter()
checkpointer.save_checkpoint(trainer)
""",
    "tokenising": """
from allennlp.common import Params
from allennlp.data import DatasetReader
import declutr.plugin
part = {"type": "pretrained_transformer", "model_name": "transformer"}
reader = DatasetReader.from_params(Params({"type": "declutr", "tokenizer": dict(part),
    "token_indexers": {"tokens": dict(part)}, "cache_dir": tempfile.mkdtemp(dir=".")}))
began = time.perf_counter()
reader.corpus("corpus.txt")
""",
    "opening a tokenised corpus": """
from allennlp.common import Params
from allennlp.data import DatasetReader
import declutr.plugin
part = {"type": "pretrained_transformer", "model_name": "transformer"}
settings = {"type": "declutr", "tokenizer": part, "token_indexers": {"tokens": part},
            "cache_dir": "cache-" + NAME}
readers = [DatasetReader.from_params(Params(copy.deepcopy(settings))) for _ in range(6)]
len(readers.pop().corpus("corpus.txt"))
began = time.perf_counter()
for reader in readers:
    reader.corpus("corpus.txt")[0]
""",
}
_START_UP = {
    "declutr --version": ["-m", "declutr", "--version"],
    "declutr embed --help": ["-m", "declutr", "embed", "--help"],
    "import of the plugin": ["-c", "import declutr.plugin"],
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--earlier", help="a checkout of the earlier release; skipped without")
    parser.add_argument("--rounds", type=int, help="turns of each (default 7; quick 2)")
    parser.add_argument("--layers", type=int, default=6, help="of the archive, 50 MB each (6)")
    parser.add_argument("--megabytes", type=int, default=20, help="of text to tokenise (20)")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=("runs", "speed"),
        default=("runs", "speed"),
        help="what every run pays; or how fast training steps and embedding are (default both)",
    )
    add_speed_arguments(parser)


def run(args: argparse.Namespace) -> None:
    if args.earlier is None:
        print("releases: skipped, as there is no --earlier checkout to compare with.")
        return
    rounds = args.rounds or (2 if args.quick else 7)
    checkouts = {"earlier": Path(args.earlier).resolve(), "now": ROOT}
    if "speed" in args.only:
        record_speed(args, checkouts, rounds)
    if "runs" in args.only:
        _record_runs(args, checkouts, rounds)


def _record_runs(args: argparse.Namespace, checkouts: dict[str, Path], rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _write_corpus(Path(folder, "corpus.txt"), args.megabytes)
        recipes = (checkouts["earlier"] / "training_config").rglob("transformer_mean.jsonnet")
        code = _PREPARE.format(layers=args.layers, recipe=next(recipes))
        _process(["-c", code], checkouts["earlier"], folder)
        size = Path(folder, "run", "model.tar.gz").stat().st_size / 1e6
        rows = [
            _row(part, checkouts, rounds, partial(_seconds, part, checkouts, folder))
            for part in [*_START_UP, *_PARTS]
        ]
    record(
        "releases",
        "What every run pays, against the release before",
        rows,
        settings={"rounds": rounds, "archive, MB": round(size), "corpus, MB": args.megabytes},
        note=f"{release_of(checkouts['earlier'])} and {release_of(ROOT)} in turns, each in a "
        f"process of its own. The archive has {size:.0f} MB of random "
        "weights, the checkpoint those weights and twice as much of an optimizer, the corpus "
        f"{args.megabytes} MB.",
    )
    for row in rows:
        print(f"{row['what']:28}{row['now / earlier']}")


def _row(
    part: str, checkouts: dict[str, Path], rounds: int, seconds: Callable[[str], float]
) -> dict[str, object]:
    """One part in turns; the first turn of each is left out."""
    taken: dict[str, list[float]] = {name: [] for name in checkouts}
    for turn in range(rounds + 1):
        for name in checkouts if turn % 2 else reversed(checkouts):
            value = seconds(name)
            if turn:
                taken[name].append(value)
    earlier, now = (Timing(name, values) for name, values in taken.items())
    return {
        "what": part,
        "earlier, s": earlier.median,
        "now, s": now.median,
        "now / earlier": str(ratio(now, earlier)),
    }


def _seconds(part: str, checkouts: dict[str, Path], folder: str, name: str) -> float:
    if part in _START_UP:
        arguments = _START_UP[part]
        before = os.times()
        _process(arguments, checkouts[name], folder)
        after = os.times()
        return (after.children_user - before.children_user) + (
            after.children_system - before.children_system
        )
    head = f"import copy, os, tempfile, time\nNAME = {name!r}\n"
    code = f"{head}{_PARTS[part]}\nprint('seconds', time.perf_counter() - began)"
    printed = _process(["-c", code], checkouts[name], folder)
    return float(printed.rpartition("seconds")[2])


def _process(arguments: list[str], checkout: Path, folder: str) -> str:
    """Run Python on a checkout, in a folder; what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "DECLUTR_CACHE": f"{folder}/cache"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{checkout} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def _write_corpus(file: Path, megabytes: int) -> None:
    rng = random.Random(0)
    letters = "etaoinshrdlu"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(20_000)]
    with file.open("w") as out:
        for _ in range(megabytes * 250):
            text = " ".join(rng.choices(words, k=615))
            out.write(text[:3999] + "\n")
