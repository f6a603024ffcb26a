"""Sampling of anchors and positives from a document (DeCLUTR, ACL 2021, section 3.2).

The code sees no text: a document is its length, and a span is a half-open interval ``[start, end)``
of positions. Both are counted in subword tokens, without special tokens.

The length of an anchor is ``min + floor(B * (max - min))`` with ``B ~ Beta(4, 2)``. The length of a
positive has the same form with ``B ~ Beta(2, 4)``, so that anchors are long and positives short on
average. Because of the floor no span has ``max_span_len`` tokens unless ``min_span_len`` equals it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Integral
from typing import NamedTuple, TypeAlias

import numpy as np

STRATEGIES = ("all", "subsuming", "adjacent")
PLACEMENTS = ("uniform", "uniform_v1", "grid")

Interval: TypeAlias = tuple[int, int]


class DocumentTooShort(ValueError):
    """An error about a document that is too short for the spans that were asked for."""


class Spans(NamedTuple):
    """The spans of one document, in which ``positives[i]`` belong to ``anchors[i]``."""

    anchors: np.ndarray
    """The anchors as half-open intervals ``[start, end)``, ``(A, 2)`` int64."""

    positives: np.ndarray
    """The positives of each anchor as half-open intervals ``[start, end)``, ``(A, P, 2)`` int64."""


@dataclass(frozen=True)
class SpanSampler:
    """A sampler of anchors, and of positives that touch or overlap them, from a document.

    Args:
        num_anchors: the number A of anchors from a document.
        num_positives: the number P of positives for each anchor.
        min_span_len: the length of the shortest span in tokens.
        max_span_len: the length of the longest span in tokens. It is also the least gap between two
            anchors of a document, except with the placement "uniform_v1".
        strategy: where positives may lie: "all" or `None` (touching or overlapping the anchor),
            "subsuming" (inside it) or "adjacent" (touching it without sharing a token).
        placement: the way anchors are placed; see docs/SAMPLING.md. "uniform" draws uniformly from
            all placements with starts at least ``2 * max_span_len`` apart (ACL paper, section 3.2),
            which nearly skips the middle of the shortest documents. "uniform_v1" requires starts to
            be ``max_span_len`` apart (arXiv, June 2020, section 3.1.1): anchors may touch, and a
            positive may overlap another anchor. "grid" places each anchor inside one block of
            ``max_span_len`` tokens, as the published code does.
        anchor_beta: the two parameters of the beta distribution of anchor lengths.
        positive_beta: the two parameters of the beta distribution of positive lengths.

    Raises:
        ValueError: if a value is invalid, or if values cannot be used together.
    """

    num_anchors: int = 2
    num_positives: int = 2
    min_span_len: int = 32
    max_span_len: int = 512
    strategy: str | None = "all"
    placement: str = "uniform"
    anchor_beta: tuple[float, float] = (4.0, 2.0)
    positive_beta: tuple[float, float] = (2.0, 4.0)

    def __post_init__(self) -> None:
        if self.strategy is None:
            object.__setattr__(self, "strategy", "all")
        for name in ("num_anchors", "num_positives", "min_span_len", "max_span_len"):
            _require_count(name, getattr(self, name))
        if self.min_span_len > self.max_span_len:
            raise ValueError(
                f"min_span_len is {self.min_span_len}, longer than max_span_len, which is "
                f"{self.max_span_len}. Lower the first or raise the second."
            )
        _require_known("strategy", self.strategy, STRATEGIES)
        _require_known("placement", self.placement, PLACEMENTS)
        for name in ("anchor_beta", "positive_beta"):
            object.__setattr__(self, name, _beta_parameters(name, getattr(self, name)))

    @property
    def min_document_len(self) -> int:
        """The number of tokens that a document needs, ``2 * A * max_span_len``."""
        return 2 * self.num_anchors * self.max_span_len

    def shrunk_to(self, length: int) -> SpanSampler:
        """Return this sampler if a document of `length` tokens is long enough, or a shrunk one.

        The shrunk one has spans of `shortest_beside` to ``length // (2 * A)`` tokens.

        Raises:
            DocumentTooShort: if the longest span would be empty.
        """
        if length >= self.min_document_len:
            return self
        longest = length // (2 * self.num_anchors)
        if longest < 1:
            raise DocumentTooShort(
                f"a document of {length} tokens is too short for {self.num_anchors} anchor(s): "
                f"spans of one token already need {2 * self.num_anchors}. Leave the document out."
            )
        return _with_longest(self, longest)

    def shortest_beside(self, longest: int) -> int:
        """Return the length of the shortest span if the longest one may have `longest` tokens.

        It is `min_span_len` where possible. For a single anchor with adjacent positives it is at
        most half of `longest`, rounded up, so that one side of the anchor always has room for it.
        """
        tight = self.strategy == "adjacent" and self.num_anchors == 1
        return min(self.min_span_len, (longest + 1) // 2 if tight else longest)

    def sample(self, length: int, rng: np.random.Generator) -> Spans:
        """Draw the spans of a document of `length` tokens.

        Args:
            length: the length of the document in tokens.
            rng: the source of random numbers.

        Raises:
            DocumentTooShort: if `length` is below `min_document_len`, or an adjacent positive fits
                neither side of a single anchor (only if ``min_span_len > max_span_len / 2``).
        """
        if length < self.min_document_len:
            raise DocumentTooShort(
                f"the document has {length} tokens; {self.num_anchors} anchor(s) of up to "
                f"{self.max_span_len} tokens need {self.min_document_len} (2 x anchors x "
                "max_span_len). Leave the document out, lower max_span_len or num_anchors, or use "
                "shrunk_to(length)."
            )
        place = self._place_on_grid if self.placement == "grid" else self._place_uniformly
        anchors = place(length, rng)
        positives = [
            [self._positive(anchor, length, rng) for _ in range(self.num_positives)]
            for anchor in anchors
        ]
        return Spans(np.array(anchors, dtype=np.int64), np.array(positives, dtype=np.int64))

    def _span_len(self, beta: tuple[float, float], longest: int, rng: np.random.Generator) -> int:
        """Draw a span length in ``[min_span_len, longest]``, by a beta law (section 3.2)."""
        shortest = self.min_span_len
        return min(longest, shortest + int(rng.beta(*beta) * (longest - shortest)))

    def _place_uniformly(self, length: int, rng: np.random.Generator) -> list[Interval]:
        """Draw anchors uniformly from all placements whose starts are far enough apart.

        Subtracting ``k * (apart - 1)`` from the k-th start maps these placements one to one to the
        sets of A distinct integers in ``{0 .. slack + A - 1}``, which can be drawn uniformly.
        """
        count = self.num_anchors
        apart = self.max_span_len * (1 if self.placement == "uniform_v1" else 2)
        lengths = [self._span_len(self.anchor_beta, self.max_span_len, rng) for _ in range(count)]
        slack = length - lengths[-1] - (count - 1) * apart
        chosen = sorted(_distinct_integers(count, slack + count, rng))
        starts = [value + k * (apart - 1) for k, value in enumerate(chosen)]
        order = rng.permutation(count).tolist()
        return [(starts[k], starts[k] + lengths[k]) for k in order]

    def _place_on_grid(self, length: int, rng: np.random.Generator) -> list[Interval]:
        """Draw each anchor inside one block of ``max_span_len`` tokens, as the published code does.

        After a block is used, it and its neighbours in the list are removed from the list. When
        blocks could run out, only the first and the last block are candidates.
        """
        longest = self.max_span_len
        blocks = list(range(0, length - longest + 1, longest))
        anchors = []
        for left in range(self.num_anchors, 0, -1):
            anchor_len = self._span_len(self.anchor_beta, longest, rng)
            if len(blocks) // left < left:
                index = (0, len(blocks) - 1)[int(rng.integers(2))]
            else:
                index = int(rng.integers(len(blocks)))
            start = blocks[index] + int(rng.integers(longest - anchor_len + 1))
            anchors.append((start, start + anchor_len))
            del blocks[max(0, index - 1) : index + 2]
        return anchors

    def _positive(self, anchor: Interval, length: int, rng: np.random.Generator) -> Interval:
        start, end = anchor
        if self.strategy == "adjacent":
            room = min(self.max_span_len, max(start, length - end))
            if room < self.min_span_len:
                raise DocumentTooShort(
                    f"an adjacent positive of at least {self.min_span_len} tokens fits neither "
                    f"before nor after the anchor [{start}, {end}) of a document of {length} "
                    "tokens. Lower min_span_len to half of max_span_len, or leave the document out."
                )
            span_len = self._span_len(self.positive_beta, room, rng)
            sides = [start - span_len] if start >= span_len else []
            if end + span_len <= length:
                sides.append(end)
            begin = sides[int(rng.integers(len(sides)))]
            return begin, begin + span_len
        if self.strategy == "subsuming":
            span_len = self._span_len(self.positive_beta, end - start, rng)
            first, last = start, end - span_len
        else:
            span_len = self._span_len(self.positive_beta, self.max_span_len, rng)
            first, last = max(0, start - span_len), min(end, length - span_len)
        begin = int(rng.integers(first, last + 1))
        return begin, begin + span_len


@lru_cache(maxsize=4096)
def _with_longest(sampler: SpanSampler, longest: int) -> SpanSampler:
    # Cached, because the constructor's checks take time and a corpus needs few different samplers.
    return replace(sampler, min_span_len=sampler.shortest_beside(longest), max_span_len=longest)


def _distinct_integers(count: int, below: int, rng: np.random.Generator) -> set[int]:
    """Draw a set of `count` integers uniformly from ``{0 .. below - 1}``, by Floyd's algorithm."""
    chosen: set[int] = set()
    for top in range(below - count, below):
        drawn = int(rng.integers(top + 1))
        chosen.add(top if drawn in chosen else drawn)
    return chosen


def _require_count(name: str, value: object) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, not {value!r}.")


def _require_known(name: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        close = difflib.get_close_matches(str(value).lower(), known, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"unknown {name} {value!r}; known: {', '.join(known)}.{hint}")


def _beta_parameters(name: str, value: Sequence[float]) -> tuple[float, float]:
    """Return `value` as a tuple, because a list from a configuration file could not be hashed."""
    pair = isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2
    if not pair or not all(
        isinstance(x, int | float) and math.isfinite(x) and x > 0 for x in value
    ):
        raise ValueError(f"{name} must be two positive numbers, not {value!r}.")
    return float(value[0]), float(value[1])
