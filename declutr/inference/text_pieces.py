"""Texts of any length to pieces that a model takes, pieces to batches, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

LONG_TEXTS = ("truncate", "chunk")


class Piece(NamedTuple):
    """A text, or a part of one."""

    row: int
    """Of the text."""
    tokens: Any
    """Without special tokens."""
    last: bool
    """Whether the text ends here."""


def pieces_of(
    texts: Sequence[Any],
    limit: int | None,
    long_texts: str = "truncate",
    keeps_end: bool = False,
) -> tuple[list[Piece], int]:
    """The pieces of texts, those of a text one after another, and how many texts were cut.

    # Parameters

    texts : the tokens of each, whole.
    limit : tokens of a piece; `None` if there is no limit.
    long_texts : `"truncate"` or `"chunk"`; parts of a text differ by one token at most, so that
        none is a stub.
    keeps_end : whether truncation leaves the end of a text, and not its beginning.
    """
    pieces: list[Piece] = []
    truncated = 0
    for row, tokens in enumerate(texts):
        length = len(tokens)
        if limit is None or length <= limit:
            pieces.append(Piece(row, tokens, True))
        elif long_texts == "truncate":
            kept = tokens[length - limit :] if keeps_end else tokens[:limit]
            pieces.append(Piece(row, kept, True))
            truncated += 1
        else:
            count = -(-length // limit)
            borders = [number * length // count for number in range(count + 1)]
            pieces += [
                Piece(row, tokens[start:end], end == length)
                for start, end in itertools.pairwise(borders)
            ]
    return pieces, truncated


def batches(
    pieces: Sequence[Piece], tokens: int, special_tokens: int, most: int | None = None
) -> Iterator[list[int]]:
    """Numbers of pieces of similar length, the longest first: if memory does not suffice, that
    shows at once.

    # Parameters

    tokens : of a batch, padding and special ones included; a longer piece makes a batch of its own.
    special_tokens : that each piece gets.
    most : pieces of a batch.
    """
    lengths = np.array([len(piece.tokens) for piece in pieces])
    batch: list[int] = []
    width = 0
    for number in np.argsort(-lengths, kind="stable").tolist():
        full = batch and ((len(batch) + 1) * width > tokens or len(batch) == most)
        if full:
            yield batch
            batch = []
        if not batch:
            width = max(int(lengths[number]) + special_tokens, 1)
        batch.append(number)
    if batch:
        yield batch


def mean_of_pieces(vectors: np.ndarray, pieces: Sequence[Piece], texts: int) -> np.ndarray:
    """`(pieces, d)` -> `(texts, d)`: the mean of a text's pieces, weighted by their tokens."""
    if len(pieces) == texts:
        return vectors
    weights = np.array([max(len(piece.tokens), 1) for piece in pieces], dtype=np.float64)
    rows = np.array([piece.row for piece in pieces])
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    total = np.add.reduceat(vectors * weights[:, None], starts, axis=0)
    return (total / np.add.reduceat(weights, starts)[:, None]).astype(np.float32)
