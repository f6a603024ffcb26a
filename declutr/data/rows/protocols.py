"""What a source of rows is, and what is made of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from allennlp.data import Field

from declutr.corpus.documents import PathLike
from declutr.data.collation import PackedSpans
from declutr.sampling.token_budget import ExpectedTokens

Paths = PathLike | Sequence[PathLike]
EncodedText = tuple[np.ndarray, int]
"""A text as its codec has it, and its length in tokens."""


class Rows(Protocol):
    """The rows at a path; row numbers count over all files there, from 0."""

    @property
    def num_tokens(self) -> np.ndarray:
        """Of each row: `(len(self),)`."""

    def __len__(self) -> int: ...


class RowSource(Protocol):
    """Where rows come from, and which of them are used."""

    def corpus(self, path: Paths) -> Rows:
        """The rows at a path, read on the first call."""

    def used(self, path: Paths) -> np.ndarray:
        """The numbers of the rows that give instances, in order.

        It is called before there are workers: what they need of the source is in memory then.

        # Raises

        `ConfigurationError` : there are none.
        """

    def beside(self, path: Paths, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """What comes beside the texts of these rows, by field: `(len(rows),)` each."""


class RowViews(Protocol):
    """What a batch holds of the rows of a source."""

    @property
    def source(self) -> RowSource: ...

    @property
    def draws_anew(self) -> bool:
        """Whether a row gives something else in every epoch."""

    def expected_tokens(self) -> ExpectedTokens:
        """How many tokens, special ones included, a row gives a batch, by its `num_tokens`."""

    def packed(self, path: Paths, rows: list[int], epoch: int) -> dict[str, PackedSpans]:
        """The views of these rows in an epoch, by field; the codec is a `WordPieceCodec`."""

    def fields(self, path: Paths, row: int, epoch: int) -> dict[str, Field]:
        """The same of one row, for an instance."""
