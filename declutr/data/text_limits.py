"""How long a text may be, and which part of a longer one is kept."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

import numpy as np
from allennlp.data import Tokenizer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token
from transformers import AutoConfig

_COUNT_FROM_PADDING = (
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
    "camembert",
    "mpnet",
    "longformer",
)
Cuttable = TypeVar("Cuttable", np.ndarray, list[Token])

_UNLIMITED = 1_000_000  # what tokenizers without a limit report is far above this


def max_tokens(tokenizer: Tokenizer) -> int | None:
    """How many tokens the transformer takes, special ones included; `None` if it does not say.

    Many tokenizers on the hub do not know; then the transformer's configuration is asked.
    """
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return None
    limit = tokenizer.tokenizer.model_max_length
    if limit < _UNLIMITED:
        return limit
    trust = bool(tokenizer._tokenizer_kwargs.get("trust_remote_code", False))
    return _configured_positions(tokenizer._model_name, trust)


@lru_cache
def _configured_positions(model_name: str, trust: bool) -> int | None:
    try:
        config = AutoConfig.from_pretrained(model_name, trust_remote_code=trust)
    except (OSError, ValueError):  # a tokenizer without a transformer
        return None
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:
        return None
    # RoBERTa and its kin begin to count positions after the padding id.
    offset = config.pad_token_id + 1 if config.model_type in _COUNT_FROM_PADDING else 0
    return positions - offset


def max_content_tokens(tokenizer: Tokenizer) -> int | None:
    """How many tokens of text fit beside the special ones, or `None` if there is no limit.

    The transformer sets it, and `max_length` of the tokenizer may lower it.
    """
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return None
    limits = [tokenizer._max_length, max_tokens(tokenizer)]
    known = [limit for limit in limits if limit is not None]
    return min(known) - tokenizer.num_special_tokens_for_sequence() if known else None


def keeps_end(tokenizer: Tokenizer) -> bool:
    """Whether longer texts keep their end, as transformers' own truncation does for this side."""
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return False
    return tokenizer.tokenizer.truncation_side == "left"


def cut(tokens: Cuttable, limit: int | None, end: bool) -> Cuttable:
    """At most `limit` tokens of a text: the first ones, or with `end` the last."""
    if limit is None or len(tokens) <= limit:
        return tokens
    return tokens[len(tokens) - limit :] if end else tokens[:limit]
