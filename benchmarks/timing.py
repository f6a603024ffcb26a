"""Times things against each other, fairly: in turns, after a warm-up, pair by pair.

On a machine that others use too, absolute seconds drift by tens of percent between minutes. What is
timed in turns drifts together, so the ratio of each round is far steadier than either number.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tqdm import tqdm


@dataclass(frozen=True)
class Timing:
    """How long one of several things took in each round."""

    name: str
    seconds: list[float]
    """One a round, in order; round i of all timings of one `compare` lay next to each other."""

    @property
    def median(self) -> float:
        """Seconds."""
        return statistics.median(self.seconds)


class Ratio(NamedTuple):
    """How many times as long one thing took as another, round by round."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.lowest:.2f} to {self.highest:.2f})"


def compare(
    functions: Mapping[str, Callable[[], Any]],
    rounds: int = 5,
    warmup: int = 1,
    *,
    progress: bool = True,
) -> list[Timing]:
    """Time functions in turns: A B A B ..., `rounds` times, after `warmup` rounds left out.

    Work that a function queued on a GPU is waited for. Garbage of earlier calls is left to Python,
    as it is in use.

    Args:
        functions: by name; called without arguments, their results dropped.
        rounds: timed calls of each, at least 1.
        warmup: calls of each before, for caches, allocators and lazy imports.
        progress: show a progress bar.

    Raises:
        ValueError: without functions or rounds.
    """
    if not functions or rounds < 1 or warmup < 0:
        raise ValueError(
            f"compare needs at least one function and one round, got {len(functions)} function(s), "
            f"rounds {rounds} and warmup {warmup}."
        )
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    title = " | ".join(name[:24] for name in functions)
    for number in tqdm(range(warmup + rounds), title, unit="round", disable=not progress):
        for name, function in functions.items():
            elapsed = seconds_of(function)
            if number >= warmup:
                seconds[name].append(elapsed)
    return [Timing(name, taken) for name, taken in seconds.items()]


def seconds_of(function: Callable[[], Any]) -> float:
    """Wall-clock seconds of one call, GPU work included."""
    _synchronize()
    start = time.perf_counter()
    function()
    _synchronize()
    return time.perf_counter() - start


def ratio(slow: Timing, fast: Timing) -> Ratio:
    """`slow` over `fast`, round by round: above 1 where `fast` is the faster one.

    Raises:
        ValueError: if the two do not have the same number of rounds.
    """
    quotients = [a / b for a, b in zip(slow.seconds, fast.seconds, strict=True)]
    return Ratio(statistics.median(quotients), min(quotients), max(quotients))


def _synchronize() -> None:
    torch = sys.modules.get("torch")  # what has not imported torch has nothing on a GPU
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
