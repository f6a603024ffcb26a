"""The finished runs: one line of JSON each, in a file a part, which the repository keeps."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
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
    """Return the finished run of an entry: the last one of its texts, settings and seed.

    It may be of another part, or have another name there, if it has all that the entry asks for.
    """
    matching = (line for line in reversed(lines) if _is_of(line, entry))
    return next(matching, None)


def _is_of(line: Line, entry: Entry) -> bool:
    if any(line[key] != entry[key] for key in ("corpus", "seed", "settings")):
        return False
    has_curve = entry["curve"] is None or line["curve"] is not None
    return has_curve and set(entry["tasks"]) <= set(line["tasks"])


def weights_of_starts(lines: Sequence[Line]) -> dict[str, str]:
    """Return the digests of the weights of pre-trained starts, by `start_key`.

    Raises:
        ValueError: runs of one start began with different weights: their gains cannot be compared.
    """
    found: dict[str, str] = {}
    for line in lines:
        if weights := line.get("weights"):
            known = found.setdefault(start_key(line["settings"]["start"]), weights)
            if weights != known:
                start = line["start"]
                raise ValueError(
                    f"Runs of {start!r} began with weights {known} and {weights}, which were made "
                    f"apart. Expected those of one machine: take the lines of the others away."
                )
    return found


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
