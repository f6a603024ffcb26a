"""The embedding layer of a transformer: ids to vectors, before the first layer of attention."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def embedding_layer(transformer: torch.nn.Module) -> torch.nn.Module:
    """What turns ids into the vectors of the first layer; normalisation and dropout included.

    # Raises

    `ValueError` : the transformer has no single part that does.
    """
    layer = getattr(transformer, "embeddings", None)
    if not isinstance(layer, torch.nn.Module):
        raise ValueError(
            f"{type(transformer).__name__} has no part 'embeddings' that makes the vectors of its "
            "first layer, so none of their features can be cut. Cut tokens or spans instead."
        )
    return layer


def embedding_width(transformer: torch.nn.Module) -> int:
    """Features of a vector of the embedding layer, which may be fewer than those of the layers
    above (ALBERT, ELECTRA); raises what `embedding_layer` does."""
    embedding_layer(transformer)
    words: Any = transformer.get_input_embeddings()  # type: ignore[operator]
    return words.embedding_dim


@contextmanager
def features_zeroed(transformer: torch.nn.Module, zeroed: Tensor) -> Iterator[None]:
    """Some features of the vectors of the embedding layer are 0 within the block.

    `zeroed` is a bool tensor that broadcasts to those vectors. A compiled transformer computes
    eagerly meanwhile: compiled code may remember what was zeroed before.

    # Raises

    `ValueError` : there is no embedding layer, or its vectors are of another width.
    """

    def zero(layer: torch.nn.Module, inputs: Any, vectors: Tensor) -> Tensor:
        if vectors.size(-1) != zeroed.size(-1):
            raise ValueError(
                f"Expected {type(layer).__name__} to give vectors {zeroed.size(-1)} wide, as wide "
                f"as its word vectors, got {vectors.size(-1)}. Cut tokens or spans instead."
            )
        return vectors.masked_fill(zeroed, 0)

    hook = embedding_layer(transformer).register_forward_hook(zero)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        hook.remove()
