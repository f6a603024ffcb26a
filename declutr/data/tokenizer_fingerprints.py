"""What the tokens of a text depend on, in a few characters."""

from __future__ import annotations

import hashlib
import json

from transformers import PreTrainedTokenizerBase


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
