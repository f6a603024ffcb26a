"""How long a text may be: by the positions of a transformer, and the limit of its tokenizer."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModel

_UNLIMITED = 1_000_000  # what tokenizers without a limit report is far above this


def first_position(transformer: torch.nn.Module) -> int:
    """Return the position of a text's first token.

    It is 0, or one after the padding id: RoBERTa and its kin count from there, and their table of
    positions has a row for padding.
    """
    paddings = [
        getattr(module, "padding_idx", None)
        for name, module in transformer.named_modules()
        if name.rpartition(".")[2] == "position_embeddings"
    ]
    return max((padding + 1 for padding in paddings if padding is not None), default=0)


def max_positions(transformer: torch.nn.Module) -> int | None:
    """Return the tokens it takes at once, special ones included; `None` if it does not say."""
    table = _table_size(getattr(transformer, "config", None))
    return None if table is None else table - first_position(transformer)


def configured_max_positions(config: Any, trust: bool = False) -> int | None:
    """Return `max_positions` of the transformer of a configuration, without memory for its weights.

    # Parameters

    config : of transformers.
    trust : run the Python code that it brings (transformers' `trust_remote_code`).
    """
    table = _table_size(config)
    if table is None:
        return None
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            transformer = AutoModel.from_config(config, trust_remote_code=trust)
    except Exception:  # nothing can be built, as whoever needs the transformer will be told
        return table
    return table - first_position(transformer)


def longest_text(tokenizer: Any, positions: int | None) -> int | None:
    """Return how many tokens a text may have, special ones included; `None` if there is no limit.

    # Parameters

    tokenizer : of transformers. Many name no limit, and some a wrong one.
    positions : `max_positions` of the transformer.
    """
    limits = (int(tokenizer.model_max_length), positions)
    return min((limit for limit in limits if limit and limit < _UNLIMITED), default=None)


def _table_size(config: Any) -> int | None:
    """Return the number of positions that are embedded; `None` if they are relative, or unknown."""
    size = getattr(config, "max_position_embeddings", None)
    return size if size is not None and size > 0 else None
