"""Functions on the text fields of a batch: flatten, slice, join, mask, average, compare.

A tensor that has a copy on the host (`declutr.system.host_memory`) keeps it through all of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from allennlp.data import TextFieldTensors
from allennlp.nn.util import get_text_field_mask
from torch import Size, Tensor
from torch.nn.functional import pad

from declutr.system.host_memory import carried

TextField = Mapping[str, Mapping[str, Tensor]]

# The names that AllenNLP's transformer indexers give to the mask of word pieces. In a batch with
# words and word pieces, "mask" is the mask of words, so it comes last.
_MASKS = ("wordpiece_mask", "segment_concat_mask", "mask")
_IDS = ("token_ids", "tokens")  # the key of transformer indexers, and of other indexers

# Odd numbers, so that multiplying modulo 2^64 loses nothing. The powers of the first repeat only
# after 2^62 tokens.
_OF_PLACES, _OF_FIELDS = 6364136223846793005, 1442695040888963407


def device_of(texts: TextFieldTensors) -> torch.device:
    """Return the device that the tensors of texts are on."""
    return _first(texts).device


def count(texts: TextFieldTensors) -> int:
    """Return the size of the first dimension: the number of documents, or of texts once flat."""
    return _first(texts).size(0)


def _first(texts: TextFieldTensors) -> Tensor:
    return next(iter(next(iter(texts.values())).values()))


def flat(texts: TextFieldTensors, spans: bool = False) -> TextFieldTensors:
    """Return spans of documents `(B, S, L)` as texts `(B * S, L)`; return texts unchanged.

    The dimension of the mask shows whether `texts` are spans. Indexers such as `single_id` make no
    mask, and their spans have the same shape as characters of tokens: then `spans` decides.
    """
    masks = [tensors["mask"] for tensors in texts.values() if "mask" in tensors]
    if not (masks[0].dim() == 3 if masks else spans):
        return texts
    return each(texts, lambda tensor: tensor.flatten(0, 1))


def part(texts: TextFieldTensors, rows: slice) -> TextFieldTensors:
    """Return a slice of texts, as views of the same memory."""
    return each(texts, lambda tensor: tensor[rows])


def rows_of(tensor: Tensor, rows: slice) -> Tensor:
    """Return a slice of the rows of a tensor, as a view of the same memory."""
    return carried(lambda whole: whole[rows], tensor)


def each(texts: TextField, operation: Callable[[Tensor], Tensor]) -> TextFieldTensors:
    """Return texts with an operation applied to each of their tensors."""
    return {
        name: {key: carried(operation, tensor) for key, tensor in tensors.items()}
        for name, tensors in texts.items()
    }


def joined(batches: Sequence[TextFieldTensors]) -> TextFieldTensors | None:
    """Concatenate several batches of texts `(N_i, L_i)` to one `(sum of N_i, largest L)`.

    # Returns

    The joined batch; `None` if the batches cannot be joined because they have other tokens than
    word pieces, several indexers, or tensors of different names.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if len(first) != 1 or any(batch.keys() != first.keys() for batch in batches):
        return None
    (name,) = first
    tensors = [batch[name] for batch in batches]
    if any(batch.keys() != tensors[0].keys() or "mask" not in batch for batch in tensors):
        return None
    if any(tensor.dim() != 2 for batch in tensors for tensor in batch.values()):
        return None
    return {
        name: {key: carried(_stacked, *(batch[key] for batch in tensors)) for key in tensors[0]}
    }


def _stacked(*tensors: Tensor) -> Tensor:
    """Concatenate tensors `(N_i, L_i)` to `(sum of N_i, largest L)`, padded with zeros."""
    width = max(tensor.size(1) for tensor in tensors)
    return torch.cat([pad(tensor, (0, width - tensor.size(1))) for tensor in tensors])


def text_fields(batch: Mapping[str, Any]) -> dict[str, TextField]:
    """Return the text fields of a batch, by name."""
    return {name: field for name, field in batch.items() if _is_text_field(field)}


def _is_text_field(field: Any) -> bool:
    return _is_mapping_of(field, Mapping) and all(
        _is_mapping_of(indexed, Tensor) for indexed in field.values()
    )


def _is_mapping_of(value: Any, kind: type) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(inner, kind) for inner in value.values())
    )


def indexed_ids(field: TextField, names: tuple[str, ...] = _IDS) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and the ids `(n, L)` of each indexer that has ids under one of `names`."""
    for indexer in sorted(field):
        found = [field[indexer][name] for name in names if name in field[indexer]]
        if found and found[0].dim() == 2 and not found[0].is_floating_point():
            yield indexer, found[0]


def mask_of_ids(tensors: Mapping[str, Tensor], ids: Tensor) -> Tensor:
    """Return the mask `(n, L)` that an indexer gives for `ids`, or else `ids != 0`."""
    masks = [tensors[name] for name in _MASKS if name in tensors]
    return next((mask.bool() for mask in masks if mask.shape == ids.shape), ids != 0)


def mask_of_length(field: TextField, shape: Size) -> Tensor | None:
    """Return the mask of words or else of word pieces that has the shape `(n, L)`, or `None`."""
    pieces = [
        tensors[name].bool() for tensors in field.values() for name in _MASKS if name in tensors
    ]
    masks = [get_text_field_mask(field), *pieces]  # type: ignore[arg-type]
    return next((mask for mask in masks if mask.shape == shape), None)


def mean_of_texts(vectors: Tensor, mask: Tensor) -> Tensor:
    """Return the mean `(n, d)` of the token embeddings of each text, in at least float32.

    # Parameters

    vectors : `(n, L, d)`.
    mask : `(n, L)` bool. A text without any token has the mean 0.
    """
    kept = wide(vectors).masked_fill(~mask.unsqueeze(-1), 0)
    return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp_min(1)


def wide(vectors: Tensor) -> Tensor:
    """Return vectors in float32, or in float64 if they are float64."""
    return vectors.float() if vectors.itemsize < 4 else vectors


def text_keys(batch: Mapping[str, Any]) -> Tensor | None:
    """Return a key (int64) for each instance of a batch; instances of equal tokens have equal keys.

    A key is a polynomial in the token ids of all text fields, modulo 2^64. Padding does not change
    it, and different texts of some hundred tokens have the same key only by chance.

    # Returns

    The keys `(n,)`; `None` if no text field has ids.
    """
    keys: Tensor | None = None
    fields = text_fields(batch)
    for name in sorted(fields):
        for indexer, ids in indexed_ids(fields[name]):
            powers = torch.full_like(ids[0], _OF_PLACES, dtype=torch.long).cumprod(dim=0)
            tokens = (ids.long() + 1) * mask_of_ids(fields[name][indexer], ids)
            sums = (tokens * powers).sum(dim=1)
            keys = sums if keys is None else keys * _OF_FIELDS + sums
    return keys
