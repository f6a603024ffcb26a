"""Embedding of texts with one model: cut or chunked, batched by length, whitened and scaled."""

from __future__ import annotations

import heapq
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from declutr.corpus.text_inputs import text_blocks
from declutr.inference import EncoderError
from declutr.inference.text_model import TextModel
from declutr.system import loggers_at

if TYPE_CHECKING:  # models that embed whole texts need not wait for torch
    from declutr.system.host_memory import Arriving

LONG_TEXTS = ("truncate", "chunk")

_BLOCK = (2048, 1 << 19)  # texts, and their characters, that are embedded at once as a whole
_BATCH_TOKENS = {"cpu": 2048, "cpu bfloat16": 4096, "cuda": 32768}  # on a CPU, as many bytes
_AT_ONCE = 16  # such batches that threads may embed at once
_COST_OF_BATCH = 60  # beside its tokens, in tokens; of MiniLM on one thread
_LEAST_TOKENS = 512  # of each thread: with fewer, all threads embed one batch together


def not_told() -> AbstractContextManager[None]:
    """Return a context in which `declutr.Encoder` counts texts that it cuts, without a warning."""
    return loggers_at(logging.ERROR, "declutr.inference.encoder")


class TextEmbedding:
    """A callable that embeds texts with one model, on one device.

    # Parameters

    model, place : the model, on its device, and where it was opened, for error messages.
    dtype : `"bfloat16"` computes under autocast; for any other dtype, `model.prepare` has set it.
    max_length, long_texts, batch_tokens, whiten, truncate_dim, normalize : see
        `declutr.inference.encoder.Encoder`.

    # Raises

    `EncoderError` : the model does not have one of the settings, or a value is out of range.
    """

    def __init__(
        self,
        model: TextModel,
        place: str,
        *,
        dtype: str,
        max_length: int | None,
        long_texts: str,
        batch_tokens: int | None,
        whiten: bool | None,
        truncate_dim: int | None,
        normalize: bool | None,
    ) -> None:
        special = model.special_tokens
        if max_length is not None and max_length <= special:
            raise EncoderError(
                f"max_length must be more than the {special} special tokens that '{place}' adds to "
                f"each text, got {max_length}."
            )
        if model.cuts_texts and (max_length or long_texts == "chunk"):
            raise EncoderError(
                "max_length and long_texts are for models over word pieces "
                f"(tokenizer and indexer of type pretrained_transformer); '{place}' is not."
            )
        self._model, self._long_texts = model, long_texts
        self.dtype = dtype
        """The dtype in use: bfloat16 computes under autocast, all others as the model does."""
        lengths = [length for length in (max_length, model.max_length) if length is not None]
        self.max_length = min(lengths, default=None)
        self._limit = None if self.max_length is None else self.max_length - special
        fits = _BATCH_TOKENS.get(f"{model.device_type} {dtype}") or _BATCH_TOKENS.get(
            model.device_type, 8192
        )
        self._batch_tokens = batch_tokens or fits
        self._tokens_at_once = batch_tokens or _AT_ONCE * fits
        self._whitening = model.whitening if whiten is not False else None
        if whiten and self._whitening is None:
            raise EncoderError(
                f"There is no whitening stored with '{place}'. Fit one with `declutr whiten`."
            )
        width = self._whitening.dimension if self._whitening else model.dimension
        if truncate_dim is None and self._whitening is None:
            truncate_dim = model.truncate_dim
        if truncate_dim is not None and not 1 <= truncate_dim <= width:
            raise EncoderError(f"truncate_dim must lie in 1 to {width}, got {truncate_dim}.")
        self._truncate_dim = truncate_dim
        self._normalize = model.normalizes if normalize is None else normalize
        self.dimension = truncate_dim or width
        """The width of embeddings."""
        self.truncated_texts = 0
        """The number of texts that were cut so far."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "truncated_texts": 0}  # a copy has cut none; see `Encoder`

    def describe(self) -> dict[str, Any]:
        """Return the settings that embeddings depend on, as JSON values."""
        # Release 1.5.0 always kept the beginning and did not record it. Only "left" is recorded, so
        # that fingerprints of that release stay valid.
        cut = self._long_texts == "truncate" and self._model.keeps_end
        return {
            "dimension": self.dimension,
            "max_length": self.max_length,
            "long_texts": self._long_texts,
            **({"truncation_side": "left"} if cut else {}),
            "dtype": self.dtype,
            "whitening": self._whitening.description if self._whitening else None,
            "truncate_dim": self._truncate_dim,
            "normalize": self._normalize,
        }

    def __call__(
        self, texts: list[str], prompt: str, batch_size: int | None, done: Callable[[int], Any]
    ) -> np.ndarray:
        """Return the embeddings `(n, k)`, float32, of n texts.

        # Parameters

        texts, prompt : the n texts, and the prompt that is put before each.
        batch_size : the largest number of texts of a batch; `None` for no such limit.
        done : called after each batch with the number of texts that it finished.
        """
        whole = self._model.embed_texts
        if whole is not None and self._limit is None:
            return self._of_whole(texts, lambda block: whole(block, prompt), done)
        tokens = self._model.tokenize(texts, prompt)
        pieces, truncated = pieces_of(tokens, self._limit, self._long_texts, self._model.keeps_end)
        self.truncated_texts += truncated
        vectors = np.empty((len(pieces), self._model.dimension), dtype=np.float32)
        last = np.array([piece.last for piece in pieces])
        for rows, arriving in self._started(pieces, batch_size):
            vectors[rows] = arriving.wait().numpy()
            done(int(last[rows].sum()))
        return self._finished(mean_of_pieces(vectors, pieces, len(texts)))

    def _started(
        self, pieces: list[Piece], batch_size: int | None
    ) -> Iterator[tuple[list[int], Arriving]]:
        """Yield the numbers (from 0) of the pieces of each batch, and their vectors."""
        from declutr.system.host_memory import HEAP
        from declutr.system.processors import one_thread_if_forked

        def start(rows: list[int]) -> Arriving:
            return self._vectors([pieces[row].tokens for row in rows])

        on_cpu = self._model.device_type == "cpu"
        if on_cpu:
            one_thread_if_forked()
            HEAP.settle()
        limits = self._batch_tokens, self._model.special_tokens, batch_size
        planned = None
        if self._model.embeds_in_threads:
            from declutr.inference.embedding_threads import computed_in_threads, threads_here

            threads = threads_here()
            planned = shares(pieces, threads, self._tokens_at_once, *limits)
        if planned is not None:
            started = computed_in_threads(start, planned, threads)
        else:
            planned = list(batches(pieces, *limits))
            # The next batch is started before the host waits for this one, which keeps a GPU busy.
            started = _one_behind(map(start, planned))
        for each in zip(planned, started, strict=True):
            yield each
            if on_cpu:
                HEAP.settle()

    def _of_whole(
        self,
        texts: list[str],
        embed: Callable[[list[str]], np.ndarray],
        done: Callable[[int], Any],
    ) -> np.ndarray:
        """Return the embeddings `(n, k)` of n texts by a function that embeds any number of texts.

        It is given blocks of texts, so that what it needs meanwhile stays small.
        """
        if len(texts) == 1:
            done(1)
            return self._finished(embed(texts))
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        start = 0
        for block in text_blocks(texts, *_BLOCK):
            vectors[start : start + len(block)] = self._finished(embed(block))
            start += len(block)
            done(len(block))
        return vectors

    def _vectors(self, tokens: list[Any]) -> Arriving:
        import torch

        from declutr.system.host_memory import Arriving
        from declutr.system.kernel_choices import usual_device

        device = self._model.device_type
        low = torch.autocast(device, torch.bfloat16, enabled=self.dtype == "bfloat16")
        with usual_device(), low:
            return Arriving(self._model.embed(tokens))

    def _finished(self, vectors: np.ndarray) -> np.ndarray:
        """Return the embeddings `(n, k)`: whitened, truncated and scaled vectors `(n, d)`."""
        if self._whitening is not None:
            vectors = self._whitening.transform(vectors).astype(np.float32)
        vectors = vectors[:, : self.dimension]
        if not self._normalize:
            return vectors
        from declutr.system.vectors import unit_rows

        return unit_rows(vectors)


class Piece(NamedTuple):
    """A whole text or a part of it, short enough for the model."""

    row: int
    """The number of the text among all texts, from 0."""
    tokens: Any
    """The tokens, without special tokens."""
    last: bool
    """Whether this is the last piece of the text."""


def pieces_of(
    texts: Sequence[Any], limit: int | None, long_texts: str = "truncate", keeps_end: bool = False
) -> tuple[list[Piece], int]:
    """Cut texts into pieces; return the pieces in order, and the number of truncated texts.

    # Parameters

    texts : the tokens of each text, uncut.
    limit : the largest number of tokens of a piece; `None` for no limit.
    long_texts : `"truncate"`, or `"chunk"` for pieces whose lengths differ by at most one token.
    keeps_end : whether truncation keeps the end of a text instead of its beginning.

    >>> [piece.tokens for piece in pieces_of(["abcde"], 2, "chunk")[0]]
    ['a', 'bc', 'de']
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
            parts = itertools.pairwise(borders)
            pieces += [Piece(row, tokens[start:end], end == length) for start, end in parts]
    return pieces, truncated


def batches(
    pieces: Sequence[Piece],
    tokens: int,
    special_tokens: int,
    most: int | None = None,
    count: int = 1,
) -> Iterator[list[int]]:
    """Yield lists of the numbers (from 0) of pieces of similar length, each list a batch.

    The longest pieces come first, so that the first batch shows if memory does not suffice.

    # Parameters

    tokens : the most tokens of a batch with padding and special tokens; a longer piece is alone.
    special_tokens : the number of special tokens that each piece gets.
    most : the largest number of pieces of a batch; `None` for no such limit.
    count : the least number of batches, if there are as many pieces. They get about equally many
        tokens, without padding.
    """
    lengths = np.array([len(piece.tokens) + special_tokens for piece in pieces])
    batch: list[int] = []
    left, border, width = int(lengths.sum()), 0.0, 0
    for number in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[number])
        full = (len(batch) + 1) * width > tokens or len(batch) == most
        if batch and (full or left - length / 2 < border):
            yield batch
            batch, count = [], count - 1
        if not batch:
            width, border = max(length, 1), left - left / max(count, 1)
        batch.append(number)
        left -= length
    if batch:
        yield batch


def shares(
    pieces: Sequence[Piece],
    threads: int,
    at_once: int,
    tokens: int,
    special_tokens: int,
    most: int | None = None,
) -> list[list[int]] | None:
    """Return batches of pieces for threads that embed one each, which end at about the same time.

    The result is `None` where threads should embed one batch together: if there are too few pieces,
    or too long ones.

    # Parameters

    threads : the number of threads.
    at_once : the most tokens of the batches of all threads together, with padding.
    tokens : about how many tokens a batch should have, without padding. With padding it has at most
        twice as many, if it is not a single longer piece.
    special_tokens, most : as for `batches`.
    """
    lengths = [len(piece.tokens) + special_tokens for piece in pieces]
    each = at_once // threads
    total, tokens = sum(lengths), min(tokens, each)
    too_few = threads == 1 or min(tokens, total // threads) < _LEAST_TOKENS
    if too_few or max(lengths) * threads > at_once:
        return None
    count = threads * math.ceil(total / (threads * tokens))
    # Most models do not compute on padding, so that it should not end a batch long before its share
    # is reached. Where it does, beside a few long pieces, smaller batches can be shared better.
    fits = min(2 * tokens, each)
    plans = [list(batches(pieces, fits, special_tokens, most, count * n)) for n in (1, 2)]
    planned = min(plans, key=lambda plan: _end(plan, lengths, threads))
    return planned if len(planned) >= threads else None


def _end(plan: list[list[int]], lengths: Sequence[int], threads: int) -> int:
    """Return when the last thread is done, if each takes the next batch as soon as it is free.

    The unit is the time that one token takes.
    """
    ends = [0] * threads
    for batch in plan:
        heapq.heapreplace(ends, ends[0] + _COST_OF_BATCH + sum(lengths[row] for row in batch))
    return max(ends)


def mean_of_pieces(vectors: np.ndarray, pieces: Sequence[Piece], texts: int) -> np.ndarray:
    """Return the embedding of each text: the mean of its pieces, weighted by their tokens.

    `vectors` `(p, d)` are of p `pieces`, ordered by text. The result is `(texts, d)`, float32.
    """
    if len(pieces) == texts:
        return vectors
    weights = np.array([max(len(piece.tokens), 1) for piece in pieces], dtype=np.float64)
    rows = np.array([piece.row for piece in pieces])
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    total = np.add.reduceat(vectors * weights[:, None], starts, axis=0)
    return (total / np.add.reduceat(weights, starts)[:, None]).astype(np.float32)


def _one_behind(items: Iterator[Any]) -> Iterator[Any]:
    """Yield the same items, each of them only after the next has been made."""
    waiting: list[Any] = []
    for item in items:
        yield from waiting
        waiting = [item]
    yield from waiting
