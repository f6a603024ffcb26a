"""Properties of tokenizers: how long texts may be, and what their tokens depend on."""

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
    """Return the number of tokens that the transformer takes, special tokens included.

    Many tokenizers on the hub do not know it, so the transformer's configuration is read as well.
    Return `None` for tokenizers that are not of a transformer, or if neither gives a limit.
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
    except (OSError, ValueError):  # The folder may hold a tokenizer alone.
        return None
    return configured_max_positions(config, trust)


def max_content_tokens(tokenizer: Tokenizer) -> int | None:
    """Return the number of tokens of text that fit beside the special tokens; `None` for no limit.

    The transformer gives the limit, and the `max_length` of the tokenizer may lower it.
    """
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return None
    limits = [tokenizer._max_length, max_tokens(tokenizer)]
    known = [limit for limit in limits if limit is not None]
    return min(known) - tokenizer.num_special_tokens_for_sequence() if known else None


def keeps_end(tokenizer: Tokenizer) -> bool:
    """Return whether longer texts lose their beginning instead of their end.

    This follows the `truncation_side` of the tokenizer, as transformers' own truncation does.
    """
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return False
    return tokenizer.tokenizer.truncation_side == "left"


def cut(tokens: Cuttable, limit: int | None, end: bool) -> Cuttable:
    """Return at most `limit` tokens of a text.

    # Parameters

    tokens : the tokens or token ids.
    limit : the largest number of tokens; `None` for no limit.
    end : whether to keep the last tokens instead of the first ones.
    """
    if limit is None or len(tokens) <= limit:
        return tokens
    return tokens[len(tokens) - limit :] if end else tokens[:limit]


def word_piece_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a name and hash of everything in a transformer's tokenizer.

    The name of a tokenizer does not tell its vocabulary.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str())
        # Padding and truncation belong to the last call, not to the tokenizer.
        state.pop("padding", None), state.pop("truncation", None)
        content = json.dumps(state, sort_keys=True)
    else:
        content = json.dumps(sorted(tokenizer.get_vocab().items()))
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return f"{type(tokenizer).__name__}:{len(tokenizer)}:{digest}"


def described(value: object) -> str:
    """Return a string of what the tokens may depend on in an attribute of a tokenizer.

    For objects of unknown classes, this is the name of the class only.
    """
    if isinstance(value, (str, int, float, bool, list, tuple, dict)):
        return repr(value)
    if isinstance(value, PreTrainedTokenizerBase):
        return word_piece_fingerprint(value)
    meta = getattr(value, "meta", None)  # Pipelines of spaCy have it.
    if isinstance(meta, dict):
        return repr([meta.get(key) for key in ("lang", "name", "version")])
    return type(value).__name__
