"""CPU time by part of a program, each part without the parts inside it."""

from __future__ import annotations

import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class PartTimes:
    """Sums the CPU time of named parts between `begin` and `end`.

    A part that runs within another counts for itself alone. Looking at the clock takes about a
    microsecond for each call of a part, which counts for the part around it.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)
        self._within: list[str] = []
        self._since = 0.0

    def begin(self) -> None:
        """Forget what was summed."""
        self._seconds.clear()
        self._since = time.process_time()

    def end(self) -> dict[str, float]:
        """Seconds of each part since `begin`."""
        return dict(self._seconds)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What runs in this block belongs to that part."""
        self._enter(name)
        try:
            yield
        finally:
            self._leave()

    def replace(self, owner: Any, attribute: str, name: str) -> None:
        """From now on, calls of `owner.attribute` belong to that part."""
        function: Callable[..., Any] = getattr(owner, attribute)

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._enter(name)
            try:
                return function(*args, **kwargs)
            finally:
                self._leave()

        setattr(owner, attribute, timed)

    def of_layers(self) -> None:
        """Parts of every transformer."""
        for kind in (torch.nn.Linear, torch.nn.LayerNorm, torch.nn.Dropout):
            self.replace(kind, "forward", f"layers: {kind.__name__}")

    def _enter(self, name: str) -> None:
        self._count()
        self._within.append(name)

    def _leave(self) -> None:
        self._count()
        self._within.pop()

    def _count(self) -> None:
        now = time.process_time()
        if self._within:
            self._seconds[self._within[-1]] += now - self._since
        self._since = now
