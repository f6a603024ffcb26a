"""Where the host waits for the device, and how many kernels it launches."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

OURS, LIBRARY, LOOP = "ours", "library", "loop"
_PACKAGES = ("declutr", "allennlp", "pytorch_metric_learning", "transformers")
_LOOP = (
    "allennlp/training/gradient_descent_trainer.py",
    "allennlp/training/callbacks/",
    "allennlp/data/data_loaders/",
)
_MOST_FRAMES = 3


@dataclass(frozen=True, order=True)
class Wait:
    """One place at which the host waits.

    # Parameters

    owner : `"ours"` where the innermost frame of the packages is in declutr, `"loop"` where
        AllenNLP's trainer or data loader waits, `"library"` where anything else does that declutr
        called.
    kind : what waits, such as `"item"`.
    place : the innermost frames, such as `"declutr/models/declutr.py:12 < allennlp/x.py:3"`.
    """

    owner: str
    kind: str
    place: str


@dataclass
class Record:
    """What a device was asked to do while this record was open."""

    waits: Counter[Wait] = field(default_factory=Counter)
    launches: Counter[str] = field(default_factory=Counter)

    def count(self, owner: str) -> int:
        """Waits of this owner."""
        return sum(number for wait, number in self.waits.items() if wait.owner == owner)

    @property
    def num_launches(self) -> int:
        return sum(self.launches.values())

    def clear(self) -> None:
        self.waits.clear()
        self.launches.clear()

    def copy(self) -> Record:
        return Record(self.waits.copy(), self.launches.copy())

    def by_place(self) -> str:
        """The waits as lines, those of one owner together, the most frequent first."""
        rows = sorted(self.waits.items(), key=lambda row: (row[0].owner, -row[1], row[0]))
        return "\n".join(f"{n:4d} x {w.owner:7s} {w.kind:34s} {w.place}" for w, n in rows)


_open: list[Record] = []


@contextlib.contextmanager
def recorded() -> Iterator[Record]:
    """A record of all that happens within this context, in whichever thread."""
    record = Record()
    _open.append(record)
    try:
        yield record
    finally:
        _open.remove(record)


def wait(kind: str) -> None:
    """The host waits here, where this is called."""
    if _open:
        found = Wait(*_owner_and_place(sys._getframe(1), kind))
        for record in _open:
            record.waits[found] += 1


def launch(operator: str) -> None:
    """This operator runs a kernel."""
    for record in _open:
        record.launches[operator] += 1


def _owner_and_place(frame: object, kind: str) -> tuple[str, str, str]:
    frames, owners = [], []
    while frame is not None:
        found = _package_file(frame.f_code.co_filename)  # type: ignore[attr-defined]
        if found is not None:
            owners.append(_owner(*found))
            frames.append(f"{found[1]}:{frame.f_lineno}")  # type: ignore[attr-defined]
        frame = frame.f_back  # type: ignore[attr-defined]
    place = " < ".join(frames[:_MOST_FRAMES]) or "autograd"
    if not owners or owners[0] == OURS:
        return OURS, kind, place
    caller = next((owner for owner in owners if owner != LIBRARY), LOOP)
    return (LOOP if caller == LOOP else LIBRARY), kind, place


def _owner(package: str, file: str) -> str:
    if package == "declutr":
        return OURS
    return LOOP if file.startswith(_LOOP) else LIBRARY


@cache
def _package_file(name: str) -> tuple[str, str] | None:
    """The package and the path within it of a source file."""
    for package, root in _roots():
        if name.startswith(root):
            return package, f"{package}/{name[len(root) :].lstrip('/')}"
    return None


@cache
def _roots() -> list[tuple[str, str]]:
    roots = []
    for package in _PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            roots.append((package, str(Path(spec.origin).parent) + "/"))
    return roots
