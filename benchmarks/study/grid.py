"""The grid of the study: what runs there are, read from `grid.jsonnet`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.memory import ROOT

GRID = ROOT / "benchmarks" / "study" / "grid.jsonnet"

_ABOUT = "name", "factors", "drawn"
"""What a row says of itself beside its settings: `drawn` is whether seeds change anything."""

Entry = dict[str, Any]
"""A run of the grid: all that its outcome depends on, but for the texts and the release."""


def read_grid(file: Path = GRID) -> dict[str, Any]:
    """Return the grid in a Jsonnet file: `starts`, and `parts` in the order of `order`."""
    import _jsonnet

    found: dict[str, Any] = json.loads(_jsonnet.evaluate_file(str(file)))
    parts = found["parts"]  # Jsonnet sorts them by name
    if sorted(found["order"]) != sorted(parts):
        raise ValueError(f"{file}: order has {found['order']}, expected all of {sorted(parts)}.")
    return {**found, "parts": {name: parts[name] for name in found["order"]}}


def chosen_parts(grid: Mapping[str, Any], names: Sequence[str] | None) -> list[str]:
    """Return the names of the parts to run; all of them if none is given.

    Raises:
        SystemExit: there is no such part.
    """
    for name in names or ():
        if name not in grid["parts"]:
            known = ", ".join(grid["parts"])
            raise SystemExit(f"The grid has no part {name!r}. Expected --part of {known}.")
    return list(names or grid["parts"])


def entries(grid: Mapping[str, Any], part: str) -> list[Entry]:
    """Return the runs of a part, one seed after the other: what ends early has all rows.

    Those of blocks without training come first.
    """
    found: list[Entry] = []
    for block in grid["parts"][part]["blocks"]:
        for seed in block["seeds"]:
            for corpus in block["corpora"]:
                for start in block["starts"]:
                    for row in block["rows"]:
                        found.append(_entry(grid, part, corpus, start, row, seed))
    found.sort(key=lambda entry: (entry["seed"], entry["settings"]["recipe"] is not None))
    return [entry for at, entry in enumerate(found) if entry not in found[:at]]


def _entry(
    grid: Mapping[str, Any], part: str, corpus: str, start: str, row: Mapping[str, Any], seed: int
) -> Entry:
    of_row = {name: value for name, value in row.items() if name not in _ABOUT}
    settings = {"start": grid["starts"][start], **of_row}
    names = {"part": part, "corpus": corpus, "start": start, "row": row["name"]}
    of_part = grid["parts"][part]
    curve = of_part.get("curve") if row["recipe"] else None
    asked = {"tasks": of_part["tasks"], "curve": curve}
    about = {
        "factors": row.get("factors", {}),
        "drawn": row.get("drawn", row["recipe"] is not None),
    }
    return {**names, "seed": seed, "settings": settings, **asked, **about}
