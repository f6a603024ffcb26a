"""The finished runs: one line of JSON each, in a file a part, which the repository keeps."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import ROOT
from benchmarks.results import json_lines
from benchmarks.study.grid import Entry

FOLDER = ROOT / "benchmarks" / "study" / "runs"

Line = dict[str, Any]
"""A finished run: its entry, and what it gave."""

_HUNDREDTHS = 100  # bootstrap samples are kept to two decimals


def read_lines(folder: Path) -> list[Line]:
    """Return the finished runs of all parts; a line that was not written to its end is none."""
    return [line for file in sorted(folder.glob("*.jsonl")) for line in json_lines(file)]


def append(folder: Path, line: Line) -> None:
    """Add a finished run, in one write, so that lines of several processes do not mix."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{line['part']}.jsonl"
    whole = not file.exists() or not file.stat().st_size or file.read_bytes().endswith(b"\n")
    text = ("" if whole else "\n") + json.dumps(line, ensure_ascii=False) + "\n"
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)


def line_of(entry: Entry, lines: Sequence[Line]) -> Line | None:
    """Return the finished run of an entry: the latest one of its texts, settings and seed.

    It may be of another part, or have another name there, if it has all that the entry asks for.
    """
    matching = [line for line in lines if _is_of(line, entry)]
    return max(matching, key=lambda line: line["date"], default=None)


def _is_of(line: Line, entry: Entry) -> bool:
    if any(line[key] != entry[key] for key in ("corpus", "seed", "settings")):
        return False
    has_curve = entry["curve"] is None or line["curve"] is not None
    return has_curve and set(entry["tasks"]) <= set(line["tasks"])


def texts_of_corpora(lines: Sequence[Line]) -> dict[str, str]:
    """Return the digests of the texts of finished runs, by the corpus.

    Raises:
        ValueError: runs on one corpus had different texts.
    """
    return _agreed((line["corpus"], line["texts"], f"the texts {line['corpus']}") for line in lines)


def weights_of_starts(lines: Sequence[Line]) -> dict[str, str]:
    """Return the digests of the weights of pre-trained starts, by `start_key`.

    Raises:
        ValueError: runs of one start began with different weights: their gains cannot be compared.
    """
    specs = ((line, line["settings"]["start"]) for line in lines if "settings" in line)
    return _agreed(
        (start_key(spec), line.get("weights") or "unknown", f"the start {line['start']}")
        for line, spec in specs
        if spec["kind"] == "pretrained"
    )


def _agreed(found: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Return digests by key, of keys, digests and what they are of."""
    known: dict[str, str] = {}
    for key, digest, of in found:
        if known.setdefault(key, digest) != digest:
            raise ValueError(
                f"Finished runs had {of} with the digests {known[key]} and {digest}: they cannot "
                "be compared. Expected one: take the lines of the others away."
            )
    return known


def start_key(spec: Mapping[str, Any]) -> str:
    """Return what names the encoder of a start, however it is pooled."""
    own = {key: value for key, value in spec.items() if key != "pooling"}
    return json.dumps(own, sort_keys=True)


def packed(samples: np.ndarray) -> str:
    """Return scores on bootstrap samples `(B,)`, in percent, as text of 2.7 characters each."""
    whole = np.where(np.isnan(samples), -(2**15), np.round(_HUNDREDTHS * samples))
    return base64.b64encode(whole.astype("<i2").tobytes()).decode()


def unpacked(text: str) -> np.ndarray:
    """Return what `packed` was given, to two decimals."""
    whole = np.frombuffer(base64.b64decode(text), dtype="<i2").astype(float)
    return np.where(whole == -(2**15), np.nan, whole / _HUNDREDTHS)
