"""Runs of the study: the start is made, trained by the recipe, and scored."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_hexdigest

from benchmarks.machine import describe_machine
from benchmarks.study.grid import Entry
from benchmarks.study.lines import Line
from benchmarks.study.scoring import scored, scored_by_bm25, tasks_of
from benchmarks.study.starts import Missing, place_of
from declutr import __version__
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
    """

    corpora: Path
    data: Path
    work: Path
    encoders: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)


def outcome(entry: Entry, tasks: list[str], places: Places) -> Line:
    """Run an entry of the grid, and return its line.

    A run that was stopped in training goes on at its last checkpoint.

    Raises:
        Missing: what it needs is not on this machine.
    """
    train, held_out, digest = _corpus(entry["corpus"], places)
    settings = entry["settings"]
    scorers = tasks_of(tasks, places.data, held_out, places.work)
    seconds = processor = 0.0
    if settings["start"]["kind"] == "bm25":
        found = scored_by_bm25(scorers, places.data)
    elif settings["recipe"] is None:
        found = scored(_start(entry, train, places), scorers, places.work / "embeddings")
    else:
        run = places.work / "runs" / _name(entry)
        start = _start(entry, train, places)
        begun, used = time.perf_counter(), time.process_time()
        _train(entry, start, train, run)
        seconds, processor = time.perf_counter() - begun, time.process_time() - used
        found = scored(str(run), scorers, None)
        shutil.rmtree(run)
    return {
        **entry,
        **found,
        "texts": digest,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "release": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": describe_machine(),
    }


def _start(entry: Entry, train: Path, places: Places) -> str:
    spec = entry["settings"]["start"]
    place = place_of(spec, entry["seed"], train, places.encoders)
    return f"hf:{place}?pooling={spec['pooling']}" if "pooling" in spec else place


def _train(entry: Entry, start: str, train: Path, output: Path) -> None:
    import declutr

    settings = entry["settings"]
    if settings.get("texts") == "sentences":
        train = _sentences(train)
    keys = {"seed": entry["seed"], "data_loader.num_workers": 0, **settings["keys"]}
    declutr.train(str(train), model=start, recipe=settings["recipe"], output=output, **keys)


def _sentences(documents: Path) -> Path:
    """Return the file of the sentences of documents, one a line, which is made if need be."""
    file = documents.with_name("sentences.txt")
    with locked(documents.parent / "texts.lock"):
        if not file.exists():
            command = [sys.executable, "-m", "declutr", "split-sentences", str(documents)]
            subprocess.run([*command, "-o", str(file)], check=True, capture_output=True)
    return file


def _name(entry: Entry) -> str:
    return xxh3_64_hexdigest(repr(sorted(entry.items())).encode())


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
