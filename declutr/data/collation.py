"""Packed batches of token ids, made without a Python object for each token, field or span.

A worker concatenates the token ids of a batch in the few bytes that they have on disk. That is what
goes through the pipe to the training process, which unpacks it into padded tensors, the same ones
as those of `SpansField` and `TokenIdsField`. Numbers beside the texts, one for each instance,
travel with them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from declutr.system.host_memory import to_device

if TYPE_CHECKING:  # Importing AllenNLP takes seconds, and packing, as an Encoder does, needs none.
    from allennlp.data import Field

    from declutr.data.fields import TextFieldTensors

# Tokenizers differ in how they treat letter case, accents, digits, punctuation, other scripts and
# the special tokens of the common model families.
_PROBE = (
    "Don't  STOP: na\u00efve cafe\u0301 co-operate 3.14 (1,000)? x_y@z.org <s> [SEP] <mask> "
    "[MASK] \u00dcber \u0420\u0443\u0441 \u6d4b\u8bd5 "
    "\u30c6\u30b9\u30c8 \U0001f642\u200d\U0001f642 \u00bd \ufb01n"
)


@dataclass(eq=False)
class ContentIds:
    """A function from texts to lists of token ids without special tokens.

    It calls the tokenizer's backend directly if that gives the same ids, because it is faster.
    """

    tokenizer: Any

    def __call__(self, texts: list[str]) -> list[list[int]]:
        return self.by_backend(texts) if self.uses_backend else self.by_tokenizer(texts)

    def by_tokenizer(self, texts: list[str]) -> list[list[int]]:
        """Return the ids that a call of the tokenizer gives."""
        encoded = self.tokenizer(
            texts,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return encoded["input_ids"]

    def by_backend(self, texts: list[str]) -> list[list[int]]:
        """Return the ids that the tokenizer's backend gives.

        The tokenizer itself also has the backend compute the offsets of every token, which costs a
        third of the time.
        """
        # The backend keeps the settings of the last call, whoever made it. Those that are right
        # are not set again: before release 0.23 of tokenizers, setting them is an error while
        # another thread tokenizes.
        backend, splits = self.tokenizer.backend_tokenizer, self.tokenizer.split_special_tokens
        if backend.truncation is not None:
            backend.no_truncation()
        if backend.padding is not None:
            backend.no_padding()
        if backend.encode_special_tokens != splits:
            backend.encode_special_tokens = splits
        return [one.ids for one in backend.encode_batch_fast(texts, add_special_tokens=False)]

    @cached_property
    def uses_backend(self) -> bool:
        """Whether the backend gives the ids of the tokenizer.

        Some tokenizers do more than call their backend. One probe text decides, and the same one in
        all processes, so that they agree.
        """
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        return hasattr(backend, "encode_batch_fast") and (
            self.by_backend([_PROBE]) == self.by_tokenizer([_PROBE])
        )


@dataclass(frozen=True, eq=False)
class Frame:
    """The special tokens around every span of a batch, and how the span is padded.

    # Parameters

    start, end : the ids of the special tokens before and after a span, 1-D.
    start_types, end_types : their segment ids.
    type_id : the segment id of the tokens of the span.
    padding_id : the id that fills `token_ids` up.
    name : the key of the token indexer the tensors stand for.
    """

    start: np.ndarray
    end: np.ndarray
    start_types: np.ndarray
    end_types: np.ndarray
    type_id: int
    padding_id: int
    name: str


@dataclass(frozen=True, eq=False)
class PackedSpans:
    """The token ids of N spans, concatenated and without special tokens.

    # Parameters

    ids : the token ids of all spans, 1-D, in the dtype of the token store.
    lengths : the number of ids of each span, `(N,)`.
    shape : the shape of the spans in the batch, `(B, S)` or `(B,)`, with a product of N.
    frame : the special tokens around each span.
    """

    ids: np.ndarray
    lengths: np.ndarray
    shape: tuple[int, ...]
    frame: Frame

    @classmethod
    def of(cls, spans: Sequence[np.ndarray], shape: tuple[int, ...], frame: Frame) -> PackedSpans:
        """Pack spans, which may be views of documents."""
        lengths = np.fromiter(map(len, spans), dtype=np.int64, count=len(spans))
        return cls(np.concatenate(spans), lengths, shape, frame)

    def tensors(self) -> TextFieldTensors:
        """Return `token_ids` (long), `mask` (bool) and `type_ids` (long), each `(*shape, L)`.

        L is the length of the longest span with its special tokens.
        """
        frame, before = self.frame, len(self.frame.start)
        ends = before + self.lengths  # where the special tokens at the end begin
        width = int(ends.max(initial=0)) + len(frame.end)
        rows = np.arange(len(ends))
        token_ids = np.full((len(ends), width), frame.padding_id, dtype=np.int64)
        token_ids[:, :before] = frame.start
        position = 0
        for row, length in zip(token_ids, self.lengths.tolist(), strict=True):
            row[before : before + length] = self.ids[position : position + length]
            position += length
        mask = np.arange(width) < (ends + len(frame.end))[:, None]
        type_ids = np.zeros_like(token_ids)
        if frame.type_id:
            type_ids[mask] = frame.type_id
        type_ids[:, :before] = frame.start_types
        for place in range(len(frame.end)):
            token_ids[rows, ends + place] = frame.end[place]
            type_ids[rows, ends + place] = frame.end_types[place]
        shape = (*self.shape, width)
        return {
            frame.name: {
                "token_ids": torch.from_numpy(token_ids.reshape(shape)),
                "mask": torch.from_numpy(mask.reshape(shape)),
                "type_ids": torch.from_numpy(type_ids.reshape(shape)),
            }
        }


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """A batch of B instances, packed for the way from a worker to the training process.

    # Parameters

    fields : the packed spans of each text field.
    beside : the numbers beside the texts, by name, int64 or float32: `(B,)` each.
    """

    fields: dict[str, PackedSpans]
    beside: dict[str, np.ndarray] = field(default_factory=dict)

    def tensors(self) -> dict[str, Any]:
        """Return the tensors that AllenNLP's collation of the instances would give."""
        texts = {name: spans.tensors() for name, spans in self.fields.items()}
        beside = {name: torch.from_numpy(values) for name, values in self.beside.items()}
        return {**texts, **beside}

    def pin_memory(self) -> dict[str, Any]:
        """Return the tensors in page-locked memory; torch calls this in its pinning thread."""
        return _each_tensor(self.tensors(), torch.Tensor.pin_memory)


def number_field(value: int | float) -> Field:
    """Make a field of one number that belongs to an instance.

    Batches of integers become int64 tensors, and batches of floats become float32 tensors.
    """
    from allennlp.data.fields import LabelField, TensorField

    if isinstance(value, int):
        return LabelField(value, skip_indexing=True)
    return TensorField(torch.tensor(value))


def moved(batch: Any, device: torch.device) -> Any:
    """Return a batch on a device.

    Its tensors remember their values on the host (`declutr.system.host_memory`), so that reading
    them does not wait for the device.
    """
    return _each_tensor(batch, lambda tensor: to_device(tensor, device))


def _each_tensor(batch: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return a batch with `function` applied to each of its tensors."""
    if isinstance(batch, dict):
        return {key: _each_tensor(value, function) for key, value in batch.items()}
    return function(batch) if isinstance(batch, torch.Tensor) else batch
