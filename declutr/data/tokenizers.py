"""What tokenizers say of texts: how long they may be, and what their tokens depend on."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import TypeVar

import numpy as np
from allennlp.data import Tokenizer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token
from transformers import AutoConfig, PreTrainedTokenizerBase

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


def word_piece_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of a transformer's whole tokenizer: its name does not tell its vocabulary."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        # Padding and truncation are settings of the last call, not of the tokenizer.
        state.pop("padding", None), state.pop("truncation", None)
        content = json.dumps(state, sort_keys=True)
    else:
        content = json.dumps(sorted(tokenizer.get_vocab().items()))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return f"{type(tokenizer).__name__}:{len(tokenizer)}:{digest}"


def described(value: object) -> str:
    """What of an attribute of a tokenizer its tokens may depend on."""
    if isinstance(value, (str, int, float, bool, list, tuple, dict)):
        return repr(value)
    if isinstance(value, PreTrainedTokenizerBase):
        return word_piece_fingerprint(value)
    meta = getattr(value, "meta", None)  # of a spaCy pipeline
    if isinstance(meta, dict):
        return repr([meta.get(key) for key in ("lang", "name", "version")])
    return type(value).__name__
