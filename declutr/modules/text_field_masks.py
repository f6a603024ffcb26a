"""Which places of text fields hold tokens, whatever indexed them, and means over those places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allennlp.nn.util import get_text_field_mask
from torch import Size, Tensor

TextField = Mapping[str, Mapping[str, Tensor]]

# AllenNLP's indexers of transformers call the mask of word pieces so, "mask" being that of words
# where there are both.
_MASKS = ("wordpiece_mask", "segment_concat_mask", "mask")
_IDS = ("token_ids", "tokens")  # of transformers' indexers, and of others


def text_fields(batch: Mapping[str, Any]) -> dict[str, TextField]:
    """Those fields of a batch that are text fields."""
    return {name: field for name, field in batch.items() if _is_text_field(field)}


def _is_text_field(field: Any) -> bool:
    return _is_mapping_of(field, Mapping) and all(
        _is_mapping_of(indexed, Tensor) for indexed in field.values()
    )


def _is_mapping_of(value: Any, kind: type) -> bool:
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(part, kind) for part in value.values())
    )


def indexed_ids(field: TextField, names: tuple[str, ...] = _IDS) -> Iterator[tuple[str, Tensor]]:
    """The indexer and the ids `(n, L)` of each that gives some under one of these names."""
    for indexer in sorted(field):
        found = [field[indexer][name] for name in names if name in field[indexer]]
        if found and found[0].dim() == 2 and not found[0].is_floating_point():
            yield indexer, found[0]


def mask_of_ids(tensors: Mapping[str, Tensor], ids: Tensor) -> Tensor:
    """The mask `(n, L)` of ids among the tensors of an indexer; without one, padding is id 0."""
    masks = [tensors[name] for name in _MASKS if name in tensors]
    return next((mask.bool() for mask in masks if mask.shape == ids.shape), ids != 0)


def mask_of_length(field: TextField, shape: Size) -> Tensor | None:
    """The mask of that shape `(n, L)`: of words, else of word pieces; `None` without one."""
    pieces = [
        tensors[name].bool() for tensors in field.values() for name in _MASKS if name in tensors
    ]
    masks = [get_text_field_mask(field), *pieces]  # type: ignore[arg-type]
    return next((mask for mask in masks if mask.shape == shape), None)


def mean_of_texts(vectors: Tensor, mask: Tensor) -> Tensor:
    """`(n, L, d)` -> `(n, d)`, the mean where the mask is set, in float32 at least; 0 for an empty
    text."""
    kept = wide(vectors).masked_fill(~mask.unsqueeze(-1), 0)
    return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp_min(1)


def wide(vectors: Tensor) -> Tensor:
    """Vectors in float32 at least."""
    return vectors.float() if vectors.itemsize < 4 else vectors
