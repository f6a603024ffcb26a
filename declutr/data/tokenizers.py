"""Properties of tokenizers: how long texts may be, and what their tokens depend on."""

import hashlib
import json
import re
from functools import lru_cache, partial
from logging import Logger
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import numpy as np
from allennlp.data import Tokenizer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, Token
from tokenizers import Tokenizer as Backend
from transformers import AutoConfig, PreTrainedTokenizerBase

from declutr.system.files import Appearance, appearance
from declutr.transformer.architectures import configured_max_positions, longest_text

Cuttable = TypeVar("Cuttable", np.ndarray, list[Token])

_PLAIN = re.Pattern, partial
_WHOLE_PATTERN = 100  # characters; `repr` cuts patterns of more than about twice as many
_DEPTH = 20  # of containers in each other; one that contains itself has no end
_ADDRESS = re.compile(" at 0x")

# Settings of a tokenizer that say where it is, or concern whole texts, whose ends are not stored.
_OF_FILES = re.compile(r"_file$|^name_or_path$|^(is_)?local|^model_max_length$|_side$")


def max_tokens(tokenizer: Tokenizer) -> int | None:
    """Return the number of tokens that the transformer takes, special tokens included.

    Many tokenizers on the hub do not know it, so the transformer's configuration is read as well.
    Return `None` for tokenizers that are not of a transformer, or if neither gives a limit.
    """
    if not isinstance(tokenizer, PretrainedTransformerTokenizer):
        return None
    trust = bool(tokenizer._tokenizer_kwargs.get("trust_remote_code", False))
    name = tokenizer._model_name
    positions = _configured_positions(name, trust, _state_of(Path(name, "config.json")))
    return longest_text(tokenizer.tokenizer, positions)


def _state_of(file: Path) -> Appearance | None:
    """Return the appearance of a file; `None` if there is none, as for a name of the hub."""
    try:
        return appearance(file)
    except OSError:
        return None


@lru_cache
def _configured_positions(model_name: str, trust: bool, _: object) -> int | None:
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
    """Return at most `limit` tokens of a text: the first ones, or the last ones with `end`."""
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
        if getattr(tokenizer, "split_special_tokens", False):  # It is set in calls of the backend.
            state["split_special_tokens"] = True
        content = json.dumps(state, sort_keys=True)
    else:
        given = sorted(tokenizer.init_kwargs.items())
        settings = [(key, described(value)) for key, value in given if not _OF_FILES.search(key)]
        merges = getattr(tokenizer, "bpe_ranks", None)  # of a file beside the vocabulary
        known = [sorted(tokenizer.get_vocab().items()), settings]
        content = json.dumps([*known, sorted(merges, key=merges.get)] if merges else known)
    digest = hashlib.sha256(content.encode()).hexdigest()[:16]
    return f"{type(tokenizer).__name__}:{len(tokenizer)}:{digest}"


def described(value: Any) -> str:
    """Return a string of what the tokens may depend on in an attribute of a tokenizer.

    Of an object of an unknown class, these are the name of the class, and its attributes that are
    strings or numbers. The string is the same in all processes.
    """
    if isinstance(value, PreTrainedTokenizerBase):
        return word_piece_fingerprint(value)
    if isinstance(value, Backend):
        return hashlib.sha256(value.to_str().encode()).hexdigest()
    meta = getattr(value, "meta", None)  # Pipelines of spaCy have it.
    if isinstance(meta, dict):
        return repr([meta.get(key) for key in ("lang", "name", "version")])
    if isinstance(value, (str, int, float, bool, list, tuple, dict, set, frozenset, *_PLAIN)):
        return _plain(value)
    own = getattr(value, "__dict__", None)
    if not isinstance(own, dict) or isinstance(value, (type, ModuleType, FunctionType, Logger)):
        return type(value).__name__
    kept = {k: v for k, v in own.items() if isinstance(v, (str, int, float, bool))}
    return f"{type(value).__name__}({_plain(kept)})" if kept else type(value).__name__


def _plain(value: Any, depth: int = 0) -> str:
    """Return the `repr` of a value, but the same in every process, and with whole patterns.

    For what release 1.5.0 described wholly, it is `repr`, so that its stores are found again.
    """
    if isinstance(value, re.Pattern):
        return f"{value!r}{value.pattern!r}" if len(value.pattern) > _WHOLE_PATTERN else repr(value)
    if isinstance(value, partial):
        parts = [value.args, value.keywords]
        return f"partial({value.func.__qualname__}, {_plain(parts, depth + 1)})"
    if depth > _DEPTH:
        return type(value).__name__
    part = partial(_plain, depth=depth + 1)
    if type(value) is dict:
        return f"{{{', '.join(f'{part(k)}: {part(v)}' for k, v in value.items())}}}"
    if type(value) is tuple:
        return f"({', '.join(map(part, value))}{',' * (len(value) == 1)})"
    if type(value) is list:
        return f"[{', '.join(map(part, value))}]"
    if type(value) in (set, frozenset):  # Their order differs by process.
        return f"{{{', '.join(sorted(map(part, value)))}}}"
    text = repr(value)
    return type(value).__name__ if _ADDRESS.search(text) else text
