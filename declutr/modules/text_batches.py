"""The text fields of a batch: taken apart and put together, their masks, means and keys.

What is known of their tensors on the host (`declutr.system.host_memory`) stays known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from allennlp.data import TextFieldTensors
from allennlp.nn.util import get_text_field_mask
from torch import Size, Tensor
from torch.nn.functional import pad

from declutr.system.host_memory import carried

TextField = Mapping[str, Mapping[str, Tensor]]

# AllenNLP's indexers of transformers call the mask of word pieces so, "mask" being that of words
# where there are both.
_MASKS = ("wordpiece_mask", "segment_concat_mask", "mask")
_IDS = ("token_ids", "tokens")  # of transformers' indexers, and of others

# Odd, so that nothing gets lost modulo 2^64; the powers of the first repeat after 2^62 places.
_OF_PLACES, _OF_FIELDS = 6364136223846793005, 1442695040888963407


def device_of(texts: TextFieldTensors) -> torch.device:
    """Return the device of the tensors."""
    return _first(texts).device


def count(texts: TextFieldTensors) -> int:
    """Return the size of the first dimension: documents, or texts once flat."""
    return _first(texts).size(0)


def _first(texts: TextFieldTensors) -> Tensor:
    return next(iter(next(iter(texts.values())).values()))


def flat(texts: TextFieldTensors, spans: bool = False) -> TextFieldTensors:
    """Return spans of documents `(B, S, L)` as texts `(B * S, L)`; texts stay as they are.

    A mask tells which they are. Indexers such as `single_id` make none, and their `(B, S, L)` looks
    like characters of tokens: then `spans` tells.
    """
    masks = [tensors["mask"] for tensors in texts.values() if "mask" in tensors]
    if not (masks[0].dim() == 3 if masks else spans):
        return texts
    return each(texts, lambda tensor: tensor.flatten(0, 1))


def part(texts: TextFieldTensors, rows: slice) -> TextFieldTensors:
    """Return some of the texts; views of the same memory."""
    return each(texts, lambda tensor: tensor[rows])


def rows_of(tensor: Tensor, rows: slice) -> Tensor:
    """Return some rows of a tensor; a view of the same memory."""
    return carried(lambda whole: whole[rows], tensor)


def each(texts: TextField, operation: Callable[[Tensor], Tensor]) -> TextFieldTensors:
    """Return the results of an operation on all tensors of texts."""
    return {
        name: {key: carried(operation, tensor) for key, tensor in tensors.items()}
        for name, tensors in texts.items()
    }


def joined(batches: Sequence[TextFieldTensors]) -> TextFieldTensors | None:
    """Return word pieces of several batches `(N_i, L_i)` as one `(sum of N_i, largest L)`.

    `None` where that is not possible: other kinds of tokens, or batches of different kinds.
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
    """`(N_i, L_i)` as `(sum of N_i, largest L)`, zero beyond each `L_i`."""
    width = max(tensor.size(1) for tensor in tensors)
    return torch.cat([pad(tensor, (0, width - tensor.size(1))) for tensor in tensors])


def text_fields(batch: Mapping[str, Any]) -> dict[str, TextField]:
    """Return those fields of a batch that are text fields."""
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
    """Yield the indexer and the ids `(n, L)` of each that gives some under one of these names."""
    for indexer in sorted(field):
        found = [field[indexer][name] for name in names if name in field[indexer]]
        if found and found[0].dim() == 2 and not found[0].is_floating_point():
            yield indexer, found[0]


def mask_of_ids(tensors: Mapping[str, Tensor], ids: Tensor) -> Tensor:
    """Return the mask `(n, L)` of ids among the tensors of an indexer; else padding is id 0."""
    masks = [tensors[name] for name in _MASKS if name in tensors]
    return next((mask.bool() for mask in masks if mask.shape == ids.shape), ids != 0)


def mask_of_length(field: TextField, shape: Size) -> Tensor | None:
    """Return the mask of that shape `(n, L)`, of words or else of word pieces, if there is one."""
    pieces = [
        tensors[name].bool() for tensors in field.values() for name in _MASKS if name in tensors
    ]
    masks = [get_text_field_mask(field), *pieces]  # type: ignore[arg-type]
    return next((mask for mask in masks if mask.shape == shape), None)


def mean_of_texts(vectors: Tensor, mask: Tensor) -> Tensor:
    """Return the mean `(n, d)` of vectors `(n, L, d)` where the mask is set, 0 for an empty text;
    in float32 at least."""
    kept = wide(vectors).masked_fill(~mask.unsqueeze(-1), 0)
    return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp_min(1)


def wide(vectors: Tensor) -> Tensor:
    """Return vectors in float32 at least."""
    return vectors.float() if vectors.itemsize < 4 else vectors


def text_keys(batch: Mapping[str, Any]) -> Tensor | None:
    """Return keys `(n,)` (int64) of the instances of a batch: equal for the same tokens, whatever
    the padding around them.

    They are polynomials in the ids of all text fields, modulo 2^64. Different texts of some hundred
    tokens have the same one by chance only.

    # Returns

    The keys; `None` if there are no text fields with ids.
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
