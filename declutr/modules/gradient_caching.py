"""Contrastive batches larger than memory: a few documents through the encoder at a time.

Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", 2021: a loss
over a batch needs all embeddings, but their gradients are known before any activation is. So the
batch is encoded keeping nothing but embeddings, the loss gives their gradients, and each chunk is
then encoded once more to carry its gradients on to the weights. That is activation checkpointing
of whole chunks, and torch's own does it: with the same random numbers, and under
DistributedDataParallel and FSDP alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from allennlp.data import TextFieldTensors
from torch.utils.checkpoint import checkpoint

from declutr.modules.text_batches import count, part, rows_of


class Encoded(NamedTuple):
    """What an encoder makes of the views of some documents."""

    embeddings: dict[str, torch.Tensor]
    """By view, `(n, d)`."""

    mlm_sums: torch.Tensor | None
    """Cross entropy of masked tokens, how many were predicted right, how many there are: `(3,)`."""


Encode = Callable[[dict[str, TextFieldTensors], torch.Tensor | None], Encoded]
"""Views of documents by name, and labels of the first view or `None`."""


def encode_in_chunks(
    encode: Encode,
    views: dict[str, TextFieldTensors],
    labels: torch.Tensor | None,
    documents: int,
    chunk_size: int,
) -> Encoded:
    """`encode(views, labels)` of `documents` documents, `chunk_size` of them at a time.

    Every view, and the labels, hold equally many rows of each document, document by document.
    """

    chunks = []
    for start in range(0, documents, chunk_size):
        share = slice(start, start + chunk_size)
        some = {
            name: part(texts, _rows(share, count(texts), documents))
            for name, texts in views.items()
        }
        their = None if labels is None else rows_of(labels, _rows(share, len(labels), documents))
        # Weights cast once for all chunks would sum the gradients of all in bfloat16.
        torch.clear_autocast_cache()
        # The backward pass is done with one chunk before it turns to the next.
        chunks.append(checkpoint(encode, some, their, use_reentrant=False))
    return Encoded(
        {name: torch.cat([chunk.embeddings[name] for chunk in chunks]) for name in views},
        None if labels is None else torch.stack([chunk.mlm_sums for chunk in chunks]).sum(0),
    )


def _rows(documents: slice, rows: int, of: int) -> slice:
    """The rows of some documents, if `rows` belong to `of` documents in equal shares."""
    each = rows // of
    return slice(documents.start * each, documents.stop * each)
