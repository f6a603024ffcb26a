"""Texts through a model: tokenised, cut or chunked, and sorted by length into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from declutr.inference.text_model import TextModel
from declutr.inference.text_pieces import Piece, batches, mean_of_pieces, pieces_of
from declutr.system.host_memory import HEAP, Arriving

_Item = TypeVar("_Item")


class TextEmbedding:
    """Embeds texts with a model, as they come from it.

    # Parameters

    model : on the device where it computes.
    max_length : tokens of a text, special ones included; `None` if there is no limit.
    long_texts : what becomes of longer ones, see `declutr.inference.text_pieces`.
    dtype : `"bfloat16"` computes in it; otherwise the model is prepared already.
    batch_tokens : tokens a batch.
    """

    def __init__(
        self,
        model: TextModel,
        max_length: int | None,
        long_texts: str,
        dtype: str,
        batch_tokens: int,
    ) -> None:
        self._model = model
        self._limit = None if max_length is None else max_length - model.special_tokens
        self._long_texts = long_texts
        self._in_bfloat16 = dtype == "bfloat16"
        self._batch_tokens = batch_tokens
        self.truncated_texts = 0
        """How many were cut so far."""

    def __call__(
        self,
        texts: list[str],
        prompt: str,
        batch_size: int | None,
        done: Callable[[int], Any],
    ) -> np.ndarray:
        """The embeddings `(n, d)` of texts, float32.

        # Parameters

        prompt : what is put before each of them.
        batch_size : texts a batch at most.
        done : is told now and then how many more texts are embedded.
        """
        tokens = self._model.tokenize(texts, prompt)
        pieces, truncated = pieces_of(tokens, self._limit, self._long_texts, self._model.keeps_end)
        self.truncated_texts += truncated
        vectors = np.empty((len(pieces), self._model.dimension), dtype=np.float32)
        special = self._model.special_tokens
        last = np.array([piece.last for piece in pieces])
        started = (
            (rows, self._vectors([pieces[row] for row in rows]))
            for rows in batches(pieces, self._batch_tokens, special, batch_size)
        )
        # A GPU has the next batch to compute while the host waits for one.
        for rows, arriving in _one_behind(started):
            vectors[rows] = arriving.wait().numpy()
            done(int(last[rows].sum()))
        return mean_of_pieces(vectors, pieces, len(texts))

    def _vectors(self, pieces: Sequence[Piece]) -> Arriving:
        device = self._model.device.type
        if device == "cpu":
            HEAP.settle()
        with torch.autocast(device, torch.bfloat16, enabled=self._in_bfloat16):
            vectors = self._model.embed([piece.tokens for piece in pieces])
        return Arriving(vectors)


def _one_behind(items: Iterator[_Item]) -> Iterator[_Item]:
    """The same items, each of them only after the next has been made."""
    waiting: list[_Item] = []
    for item in items:
        yield from waiting
        waiting = [item]
    yield from waiting
