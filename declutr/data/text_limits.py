"""How long a text may be, and which part of a longer one is kept."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

import numpy as np
from allennlp.data import Tokenizer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token
from transformers import AutoConfig

from declutr.transformer.architectures import configured_max_positions, longest_text

Cuttable = TypeVar("Cuttable", np.ndarray, list[Token])


def max_tokens(tokenizer: Tokenizer) -> int | None:
    """How many tokens the transformer takes, special ones included; `None` if it does not say.

    Many tokenizers on the hub do not know; the transformer's configuration is asked as well.
    """
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return None
    trust = bool(tokenizer._tokenizer_kwargs.get("trust_remote_code", False))
    positions = _configured_positions(tokenizer._model_name, trust)
    return longest_text(tokenizer.tokenizer, positions)


@lru_cache
def _configured_positions(model_name: str, trust: bool) -> int | None:
    try:
        config = AutoConfig.from_pretrained(model_name, trust_remote_code=trust)
    except (OSError, ValueError):  # a tokenizer without a transformer
        return None
    return configured_max_positions(config, trust)


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
