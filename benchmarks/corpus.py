"""What a corpus costs by its size: tokenising, opening it again, and memory while training.

The files are one text repeated. That is fair here: nothing remembers documents, and tokenising is
as much work for text that was seen before (but for the tokenizer's cache of words, which common
words fill soon either way).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.memory import ROOT, PeakMemory, Usage, in_fresh_process, run_and_watch
from benchmarks.results import Plot, record
from benchmarks.texts import checkpoint, corpus_file, lines

QUICK_MEGABYTES = [10, 50]
MEGABYTES = [50, 200, 1000, 5000]
MIB = 2**20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="text, one document a line (default: docstrings)")
    parser.add_argument(
        "--megabytes",
        type=int,
        nargs="+",
        help="sizes of the corpus (default 50 200 1000 5000; quick 10 50)",
    )
    parser.add_argument("--steps", type=int, help="training steps (default 200; quick 10)")
    parser.add_argument("--scratch", help="a folder with room for twice the largest corpus")


def run(args: argparse.Namespace) -> None:
    sizes = args.megabytes or (QUICK_MEGABYTES if args.quick else MEGABYTES)
    steps = args.steps or (10 if args.quick else 200)
    source = corpus_file(args.data)
    folder = checkpoint(source, "mini")
    rows = []
    for size in tqdm(sizes, "corpus sizes", unit="size"):
        with _scratch(args.scratch) as scratch:
            rows.append(_row(source, folder, scratch, size, steps))
    record(
        "corpus",
        "Size of the corpus",
        rows,
        settings={"steps": steps, "data": source.name},
        note="`allocated` is anonymous memory, what processes must have; of tokenising and opening "
        "only what the imports do not take. Resident memory also counts what the system keeps of "
        "mapped files as long as it has room. All processes together; a page that several share "
        f"counts once. Training is `allennlp train` of a small transformer for {steps} steps with "
        "one worker.",
        plots=[
            Plot(
                "corpus_memory",
                "Memory of training",
                "lines",
                "corpus, MB",
                "training, allocated, MiB",
                logarithmic="x",
            ),
            Plot(
                "corpus_time",
                "Tokenising, once",
                "lines",
                "corpus, MB",
                "tokenising, s",
                logarithmic="xy",
            ),
        ],
    )


def _row(source: Path, folder: Path, scratch: Path, megabytes: int, steps: int) -> dict[str, Any]:
    corpus = repeated(source, scratch / "corpus.txt", megabytes * 10**6)
    kwargs = {"folder": str(folder), "corpus": str(corpus), "cache": str(scratch / "cache")}
    made, making = in_fresh_process("benchmarks.opening.open_corpus", kwargs)
    opened, opening = in_fresh_process("benchmarks.opening.open_corpus", kwargs)
    training = train(folder, corpus, scratch, steps)
    return {
        "corpus, MB": megabytes,
        "documents": made["documents"],
        "tokens, millions": made["tokens"] / 1e6,
        "tokenising, s": made["seconds"],
        "tokenising, MB/s": megabytes / made["seconds"],
        "tokenising, allocated, MiB": _added(making),
        "opening again, s": opened["seconds"],
        "opening again, allocated, MiB": _added(opening),
        "on disk, bytes a token": size_of(scratch / "cache") / made["tokens"],
        "training, allocated, MiB": training.private / MIB,
        "training, resident, MiB": training.resident / MIB,
    }


def reader_settings(folder: Path) -> dict[str, Any]:
    """A reader of the transformer in `folder`, as a recipe has it."""
    transformer = {"type": "pretrained_transformer", "model_name": str(folder)}
    return {
        "type": "declutr",
        "num_anchors": 2,
        "num_positives": 2,
        "max_span_len": 64,  # short spans train fast, and what is measured is the corpus
        "min_span_len": 16,
        "tokenizer": {**transformer},
        "token_indexers": {"tokens": {**transformer}},
    }


def _added(memory: PeakMemory) -> float:
    """MiB beyond what the imports took."""
    return (memory.private - memory.private_before) / MIB


def train(folder: Path, corpus: Path, scratch: Path, steps: int) -> Usage:
    """The memory of `allennlp train` over some steps, with all of its processes."""
    recipe = json.dumps(
        {
            "dataset_reader": reader_settings(folder),
            "vocabulary": {"type": "empty"},
            "train_data_path": str(corpus),
            "model": {
                "type": "declutr",
                "text_field_embedder": {
                    "type": "mlm",
                    "token_embedders": {
                        "tokens": {"type": "pretrained_transformer_mlm", "model_name": str(folder)}
                    },
                },
                "loss": {"type": "nt_xent"},
            },
            "data_loader": {
                "type": "declutr",
                "batch_size": 4,
                "shuffle": True,
                "drop_last": True,
                "num_workers": 1,
            },
            "trainer": {
                "num_epochs": 1,
                "optimizer": {"type": "huggingface_adamw", "lr": 1e-4},
                "callbacks": [{"type": "benchmark_stop_after", "steps": steps}],
                "run_confidence_checks": False,
                "cuda_device": -1,
            },
        }
    )
    file = scratch / "recipe.json"
    file.write_text(recipe, encoding="utf-8")
    output = scratch / "output"
    command = [sys.executable, "-m", "allennlp", "train", str(file), "-s", str(output)]
    command += ["--include-package", "benchmarks.stop_after"]
    environment = {
        **os.environ,
        "DECLUTR_CACHE": str(scratch / "cache"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    return run_and_watch(command, environment=environment)


def repeated(source: Path, file: Path, size: int) -> Path:
    """Write the lines of `source` over and over until the file has `size` bytes.

    Raises:
        OSError: if the disk has no room.
    """
    free = shutil.disk_usage(file.parent).free
    if free < 2 * size:
        raise OSError(
            f"a corpus of {size / 1e9:.1f} GB and its tokens need {2 * size / 1e9:.1f} GB, but "
            f"{file.parent} has {free / 1e9:.1f} GB left. Name another folder with --scratch, or "
            "smaller sizes with --megabytes."
        )
    text = ("\n".join(line for line in lines(source, 50_000_000) if line) + "\n").encode()
    with file.open("wb") as stream:
        while (missing := size - stream.tell()) > 0:
            # What does not fit ends at the end of a line.
            stream.write(text if missing >= len(text) else text[: missing - 1] + b"\n")
    return file


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def _scratch(parent: str | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=parent, prefix="declutr-corpus-") as folder:
        yield Path(folder)
