"""Runs of the study: the start is made, trained by the recipe, and scored."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_hexdigest

from benchmarks.machine import describe_machine
from benchmarks.study.commands import run_command
from benchmarks.study.grid import Entry
from benchmarks.study.lines import Line, start_key
from benchmarks.study.scoring import scored, scored_by_bm25, tasks_of
from benchmarks.study.starts import Missing, place_of, weights_of
from declutr import __version__
from declutr.environment.cache_entries import lock_taken
from declutr.system.files import locked

_HELD_OUT_EVERY = 10  # documents


@dataclass(frozen=True, eq=False)
class Places:
    """Where things are on this machine.

    Args:
        corpora: a folder of texts, `NAME.txt` with a document a line.
        data: of the evaluation, laid out as SentEval's.
        work: keeps starts and runs that are not finished.
        encoders: folders of encoders, by the name in the grid.
        digests: of the texts of finished runs, by name.
        weights: digests of the weights of their pre-trained starts, by `lines.start_key`.
    """

    corpora: Path
    data: Path
    work: Path
    encoders: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)


def outcome(entry: Entry, places: Places) -> Line:
    """Run an entry of the grid, and return its line.

    A run that was stopped in training goes on at its last checkpoint.

    Raises:
        Missing: what it needs is not on this machine.
    """
    train, held_out, digest = _corpus(entry["corpus"], places)
    settings = entry["settings"]
    scorers = tasks_of(entry["tasks"], places.data, held_out, places.work)
    seconds = processor = 0.0
    curve = weights = None
    resumed = False
    if settings["start"]["kind"] == "bm25":
        found = scored_by_bm25(scorers, places.data)
    elif settings["recipe"] is None:
        start, weights = _start(entry, train, places)
        found = scored(start, scorers, places.work / "embeddings")
    else:
        start, weights = _start(entry, train, places)
        run = places.work / "runs" / _name(entry, digest, weights)
        resumed = run.exists()
        begun, used = time.perf_counter(), _processor_seconds()
        _train(entry, start, train, run, places.data)
        seconds, processor = time.perf_counter() - begun, _processor_seconds() - used
        found = scored(str(run), scorers, None)
        curve = _curve(run) if entry["curve"] else None
        shutil.rmtree(run)
    return {
        **entry,
        **found,
        "curve": curve,
        "texts": digest,
        "weights": weights,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "resumed": resumed,  # then the seconds are not all
        "release": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine(),
    }


def _start(entry: Entry, train: Path, places: Places) -> tuple[str, str | None]:
    """Return the start, and the digest of its weights if it is one that was trained here.

    Raises:
        Missing: it is not on this machine, or has other weights than that of finished runs.
    """
    spec = entry["settings"]["start"]
    if "texts" in spec:  # of more corpora than the one it is trained on next
        train = _joined(tuple(spec["texts"]), places)
    place = place_of(spec, entry["seed"], train, places.encoders)
    weights = weights_of(place, spec)
    if weights and places.weights.get(start_key(spec), weights) != weights:
        raise Missing(
            f"the weights of {entry['start']!r} of the finished runs: {place} was made apart; "
            "copy theirs to its place, or begin a folder of --runs"
        )
    return f"hf:{place}?pooling={spec['pooling']}" if "pooling" in spec else place, weights


def _joined(names: tuple[str, ...], places: Places) -> Path:
    """Return the file of the training documents of several corpora, in turns.

    Raises:
        Missing: there are no texts of one of these names, or others than finished runs had.
    """
    found = [_corpus(name, places) for name in names]
    every = xxh3_64_hexdigest("".join(digest for _, _, digest in found).encode())
    folder = places.work / "texts" / f"{len(names)}-corpora-{every}"
    train = folder / "train.txt"
    with locked(folder / "texts.lock"):
        if not train.exists():
            of_each = [file.read_bytes().split(b"\n") for file, _, _ in found]
            turns = (line + b"\n" for lines in zip_longest(*of_each) for line in lines if line)
            partial = train.with_suffix(".partial")
            partial.write_bytes(b"".join(turns))
            partial.rename(train)
    return train


def _train(entry: Entry, start: str, train: Path, output: Path, data: Path) -> None:
    """Train a start by the recipe; a whitening is fitted to its embeddings of the same texts."""
    import declutr

    settings, seed = entry["settings"], entry["seed"]
    if settings.get("texts") == "sentences":
        train = _sentences(train)
    keys = {"seed": seed, "data_loader.num_workers": 0, **settings["keys"]}
    if entry["curve"]:
        scores = {"type": "evaluate_embeddings", "data": str(data), **entry["curve"]}
        resumed = {"type": "exact_resume", "seed": seed}
        keys["trainer.callbacks"] = [{"type": "run_record"}, resumed, scores]
    declutr.train(str(train), model=start, recipe=settings["recipe"], output=output, **keys)
    if "whitening" in settings:
        run_command("whiten", str(output), str(train), "--quiet", *settings["whitening"])


def _processor_seconds() -> float:
    """Return what this process, and those it waited for, have computed."""
    return sum(os.times()[:4])


def _curve(run: Path) -> list[dict[str, Any]]:
    """Return the scores between the steps of a run: `step`, and `scores` by task and name."""
    found = [json.loads(file.read_text()) for file in (run / "evaluations").glob("step_*.json")]
    curve = [{"step": record["step"], "scores": record["scores"]} for record in found]
    return sorted(curve, key=lambda record: record["step"])


def _sentences(documents: Path) -> Path:
    """Return the file of the sentences of documents, one a line, which is made if need be."""
    file = documents.with_name("sentences.txt")
    with locked(documents.parent / "texts.lock"):
        if not file.exists():
            run_command("split-sentences", str(documents), "-o", str(file))
    return file


@contextmanager
def claimed(entry: Entry, work: Path) -> Iterator[bool]:
    """Keep other processes with the same folder `work` from this run; yields whether it is free."""
    file = work / "runs" / f"{_name(entry)}.lock"
    file.parent.mkdir(parents=True, exist_ok=True)
    with lock_taken(file) as free:
        yield free


def _name(entry: Entry, *more: str | None) -> str:
    """Return what names a run: all of the entry that its training depends on, and `more`."""
    of_training = {key: entry[key] for key in ("corpus", "seed", "settings", "curve")}
    return xxh3_64_hexdigest(json.dumps([of_training, *more], sort_keys=True).encode())


@cache
def _corpus(name: str, places: Any) -> tuple[Path, Path, str]:
    """Return the documents of training, those that are held out, and a digest of all.

    Raises:
        Missing: there are no texts of this name, or others than finished runs had.
    """
    file = places.corpora / f"{name}.txt"
    if not file.is_file():
        raise Missing(f"the texts {name}: {name}.txt in --corpus")
    text = file.read_bytes()
    digest = xxh3_64_hexdigest(text)
    if places.digests.get(name, digest) != digest:
        raise Missing(f"the texts {name} of the finished runs: {file} has others")
    folder = places.work / "texts" / f"{name}-{digest}"
    train, held_out = folder / "train.txt", folder / "held_out.txt"
    with locked(folder / "texts.lock"):
        if not held_out.exists():
            lines = text.splitlines(keepends=True)
            train.write_bytes(b"".join(_others(lines)))
            partial = held_out.with_suffix(".partial")
            partial.write_bytes(b"".join(lines[::_HELD_OUT_EVERY]))
            partial.rename(held_out)
    return train, held_out, digest


def _others(lines: list[bytes]) -> list[bytes]:
    return [line for at, line in enumerate(lines) if at % _HELD_OUT_EVERY]
