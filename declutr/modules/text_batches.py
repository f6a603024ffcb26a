"""`TextFieldTensors` as one takes them apart and puts them together.

What is known of them on the host (`declutr.system.host_memory`) stays known.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from allennlp.data import TextFieldTensors
from torch.nn.functional import pad

from declutr.system.host_memory import carried


def device_of(texts: TextFieldTensors) -> torch.device:
    """Where the tensors are."""
    return _first(texts).device


def count(texts: TextFieldTensors) -> int:
    """The size of the first dimension: documents, or texts once flat."""
    return _first(texts).size(0)


def flat(texts: TextFieldTensors, spans: bool = False) -> TextFieldTensors:
    """Spans of documents `(B, S, L)` as texts `(B * S, L)`; texts stay as they are.

    A mask tells which they are. Indexers such as `single_id` make none, and their `(B, S, L)` looks
    like characters of tokens: then `spans` tells.
    """
    masks = [tensors["mask"] for tensors in texts.values() if "mask" in tensors]
    if not (masks[0].dim() == 3 if masks else spans):
        return texts
    return {
        name: {key: carried(_without_spans, tensor) for key, tensor in tensors.items()}
        for name, tensors in texts.items()
    }


def part(texts: TextFieldTensors, rows: slice) -> TextFieldTensors:
    """Some of the texts; views of the same memory."""
    return {
        name: {key: rows_of(tensor, rows) for key, tensor in tensors.items()}
        for name, tensors in texts.items()
    }


def rows_of(tensor: torch.Tensor, rows: slice) -> torch.Tensor:
    """Some rows of a tensor; a view of the same memory."""
    return carried(lambda whole: whole[rows], tensor)


def joined(batches: Sequence[TextFieldTensors]) -> TextFieldTensors | None:
    """Word pieces of several batches `(N_i, L_i)` as one `(sum of N_i, largest L)`.

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


def _without_spans(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten(0, 1)


def _stacked(*tensors: torch.Tensor) -> torch.Tensor:
    """`(N_i, L_i)` as `(sum of N_i, largest L)`, zero beyond each `L_i`."""
    width = max(tensor.size(1) for tensor in tensors)
    return torch.cat([pad(tensor, (0, width - tensor.size(1))) for tensor in tensors])


def _first(texts: TextFieldTensors) -> torch.Tensor:
    return next(iter(next(iter(texts.values())).values()))
