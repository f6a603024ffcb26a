"""What a static encoder finds among docstrings, before and after its training.

Queries are fixed, and were chosen before any result was looked at.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from declutr.evaluation.bootstrap import percentiles
from declutr.inference.encoder import Encoder
from declutr.system.vectors import unit_rows

QUERIES = (
    "read a table from a CSV file",
    "delete a folder and everything in it",
    "run a function in several processes at once",
    "how far apart are two strings?",
    "solve a system of linear equations",
    "draw random numbers from a normal distribution",
    "parse the options of a command line",
    "the shortest path between two nodes",
    "split text into words",
    "wait until a lock is free",
)
HITS = 3
MOST_PAIRS = 2_000
_LEAST_WORDS = 16  # of a body that a summary is to find
_RESAMPLES = 1_000
_WIDTH = 48  # characters of a column


class NamedDocstring(NamedTuple):
    """A docstring of the corpus, and whether its module was held out from training."""

    name: str
    summary: str
    body: str
    module: str
    held_out: bool


class Share(NamedTuple):
    """A share of summaries, with a 95 % interval over modules."""

    value: float
    low: float
    high: float


class Retrieval(NamedTuple):
    """The shares of held-out summaries that find their body, for each encoder."""

    pairs: int
    shares: dict[str, Share]


def read_docstrings(file: Path) -> list[NamedDocstring]:
    """Return the docstrings that `write_corpus` wrote."""
    with file.open(encoding="utf-8") as lines:
        return [NamedDocstring(**json.loads(line)) for line in lines]


def start_of(run: Path) -> Path:
    """Return the folder of the table that a run of a static encoder began with."""
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    return Path(config["model"]["text_field_embedder"]["model_name"])


def search_both(
    before: Encoder, after: Encoder, docstrings: Sequence[NamedDocstring]
) -> list[tuple[str, list[str], list[str]]]:
    """Return each of `QUERIES` with its nearest docstrings, before and after."""
    texts = [f"{one.summary} {one.body}" for one in docstrings]
    lines = [_line(one) for one in docstrings]
    found = []
    for encoder in (before, after):
        vectors, queries = unit_rows(encoder(texts)), unit_rows(encoder(list(QUERIES)))
        nearest = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :HITS]
        found.append([[lines[place] for place in row] for row in nearest])
    return list(zip(QUERIES, *found, strict=True))


def held_out_pairs(docstrings: Sequence[NamedDocstring], seed: int = 0) -> list[NamedDocstring]:
    """Return at most `MOST_PAIRS` held-out docstrings with a body, drawn by a seed."""
    usable = [one for one in docstrings if one.held_out and one.body.count(" ") + 1 >= _LEAST_WORDS]
    return random.Random(seed).sample(usable, min(MOST_PAIRS, len(usable)))


def retrieval(encoders: Mapping[str, Encoder], docstrings: Sequence[NamedDocstring]) -> Retrieval:
    """Return how often the summary of a held-out docstring is nearest to its own body.

    The interval is of a bootstrap over modules, because docstrings of a module are alike.
    """
    pairs = held_out_pairs(docstrings)
    modules = np.unique([one.module for one in pairs], return_inverse=True)[1]
    sizes = np.bincount(modules)
    draws = np.random.default_rng(0).multinomial(
        len(sizes), np.full(len(sizes), 1 / len(sizes)), _RESAMPLES
    )
    shares = {}
    for name, encoder in encoders.items():
        summaries = unit_rows(encoder([one.summary for one in pairs]))
        bodies = unit_rows(encoder([one.body for one in pairs]))
        hits = (summaries @ bodies.T).argmax(axis=1) == np.arange(len(pairs))
        found = np.bincount(modules, weights=hits)
        low, high = percentiles((draws @ found) / (draws @ sizes))
        shares[name] = Share(float(hits.mean()), float(low), float(high))
    return Retrieval(len(pairs), shares)


def reported(
    hits: Sequence[tuple[str, list[str], list[str]]], found: Retrieval, folder: Path
) -> str:
    """Return the hits side by side, and the shares of summaries that found their body."""
    lines = ["  Ten questions, fixed beforehand, and the nearest docstrings of the corpus:", ""]
    lines += [f"    {'first table (before)':<{_WIDTH}}  trained (after)"]
    for query, before, after in hits:
        lines += ["", f'  "{query}"']
        lines += [f"    {one:<{_WIDTH}}  {other}" for one, other in zip(before, after, strict=True)]
    lines += [
        "",
        f"  The first paragraph of {found.pairs:,} held-out docstrings is to find the rest of its",
        "  own docstring among them all, as the nearest. It does in this share (95 % interval):",
        "",
    ]
    for name, share in found.shares.items():
        lines.append(f"    {name:<30} {share.value:6.1%}   ({share.low:.1%} to {share.high:.1%})")
    lines += [
        f"    {'chance':<30} {1 / max(found.pairs, 1):6.2%}",
        "",
        f"  The trained static encoder lies in {folder}.",
    ]
    return "\n".join(lines)


def _line(one: NamedDocstring) -> str:
    """Return the end of the name of a docstring and the beginning of its text, for a column."""
    text = f"{one.name.rpartition('.')[2]}: {one.summary}"
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1].rstrip()}…"
