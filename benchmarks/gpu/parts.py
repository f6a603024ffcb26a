"""The parts of `python -m benchmarks gpu`, and how its minutes are shared among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MINUTES = 9.7
"""Of one call by default: machines are often given for ten."""

END_SECONDS = 7.0
"""Kept for the end of a call: the last process closes, files are written."""


class Part(NamedTuple):
    """A module `benchmarks.gpu.NAME` with `run(findings, settings)`, in a process of its own."""

    seconds: float
    """Its share of `MINUTES`."""
    what: str


PARTS = {
    "machine": Part(20, "rates of this GPU: matrix products, copies, launches, waits"),
    "correct": Part(100, "losses, gradients and embeddings against those of the CPU"),
    "step": Part(160, "a training step against the original recipe"),
    "embed": Part(55, "embedding texts against sentence-transformers"),
    "train": Part(75, "`allennlp train` against the bare step"),
    "chunks": Part(45, "gradient caching: 512 and 4,096 documents"),
    "reclaim": Part(35, "RECLAIM beside a task"),
    "distributed": Part(30, "several processes against one"),
    "recipes": Part(55, "every recipe trains, validates and embeds"),
}
"""In order: what is worth most comes first, for what does not fit in at the end is left out."""


def limit(name: str, following: Sequence[str], left: float) -> float:
    """Seconds that a part may take: its share of what is left, as large as those that follow have.

    Args:
        name: of the part that begins now.
        following: names of the parts after it.
        left: seconds of the whole call that are left, without `END_SECONDS`.
    """
    shares = [PARTS[part].seconds for part in (name, *following)]
    return max(0.0, left) * shares[0] / sum(shares)
