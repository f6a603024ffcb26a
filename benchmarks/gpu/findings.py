"""What the checks of a part found: one dictionary each, on disk as soon as it is known."""

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Settings(NamedTuple):
    """What a part is told."""

    device: str
    """"cuda" or "cpu"."""
    tiny: bool
    """Sizes of a rehearsal."""
    work: Path
    """A folder that the parts of a call share."""


class Findings:
    """Runs checks within a time. One that fails is a finding, and does not end the others.

    Args:
        file: where they are kept, as JSON.
        end: of the part, on the clock `time.monotonic`; no check is begun after it.
        about: what is kept beside them.
    """

    def __init__(self, file: Path, end: float, **about: Any) -> None:
        self._file = file
        self._about = about
        self._began = time.monotonic()
        self._end = end
        self.checks: list[dict[str, Any]] = []
        self.broken = ""  # the check that left the device unusable to this process
        gc.collect()
        gc.freeze()  # what was imported stays; to look through it after every check takes long

    @property
    def left(self) -> float:
        """Seconds left to this part."""
        return self._end - time.monotonic()

    def check(
        self,
        name: str,
        function: Callable[..., dict[str, Any]],
        *args: Any,
        row: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Call `function`, which gives columns of a table; they, or why there are none.

        Instead of columns, a check that failed has "failed" (and "where"), and one for which there
        was no time "skipped". `row` are columns that it has in any case.
        """
        began, found = time.monotonic(), {"check": name, **(row or {})}
        if self.broken:
            found["skipped"] = f"the device is broken since '{self.broken}'"
        elif self.left < 3:
            found["skipped"] = "no time left"
        else:
            print(f"({name})", file=sys.stderr, flush=True)  # which one it was, if it never ends
            try:
                found |= function(*args)
            except Exception as error:
                found["failed"] = f"{type(error).__name__}: {str(error)[:400]}"
                found["where"] = traceback.format_exc()[-2500:]
            try:
                _free()
            except Exception as error:  # a fault of the device stays: the rest would fail by it
                found.setdefault("failed", f"{type(error).__name__}: {str(error)[:400]}")
                self.broken = name
        found["seconds"] = round(time.monotonic() - began, 1)
        self.checks.append(found)
        shown = {key: value for key, value in found.items() if key not in ("check", "where")}
        print(f"[{time.monotonic() - self._began:5.1f} s] {name}: {_short(shown)}", flush=True)
        self.save()
        return found

    def save(self) -> None:
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps({**self._about, "checks": self.checks}, default=str))
        partial.replace(self._file)


def _short(values: dict[str, Any]) -> str:
    parts = []
    for key, value in values.items():
        shown = f"{value:.4g}" if isinstance(value, float) else str(value)
        parts.append(f"{key} {shown[:200]}")
    return ", ".join(parts)[:700]


def _free() -> None:
    """What the last check left on the device, so that it does not count for the next."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
