"""Texts as our reader sees them, wherever they are tokenised: one blank for a run of white space.

`declutr.corpus.documents.normalize_whitespace` (`" ".join(text.split())`) runs before every
tokenizer here. Other tools know nothing of it, so an exported tokenizer does it itself.
"""

from __future__ import annotations

import json
from typing import Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from declutr.corpus.documents import normalize_whitespace

# What `str.split` takes for white space. `\s` of the regular expressions of tokenizers lacks
# U+001C to U+001F.
_CLASS = "[\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
_NORMALIZERS: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"Regex": _CLASS}, "content": " "},
    {"type": "Strip", "strip_left": True, "strip_right": True},
]
_ODD = (
    " Plain\u00a0words\t and\n\nnumbers 3.14 \u2003",
    "\x1c\x1da\x1eb\x1fc\x85d\u1680e\u2028f\u3000g\u200bh ",
    "",
    "\r\n",
)


def tokenizer_with_white_space(
    tokenizer: PreTrainedTokenizerBase, inputs: list[str], max_length: int | None
) -> PreTrainedTokenizerFast | None:
    """Return a tokenizer that gives for any text what `tokenizer` gives for it with plain blanks.

    `None` if there is none: for tokenizers in plain Python, and those that do more than the library
    beneath them.

    # Parameters

    tokenizer : as it was trained with.
    inputs : what it hands to a transformer, such as `["input_ids", "attention_mask"]`.
    max_length : tokens, special ones included.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    from tokenizers import Tokenizer

    settings: dict[str, Any] = {
        name: token
        for name, token in tokenizer.special_tokens_map.items()
        if isinstance(token, str)  # further ones are in the state
    }
    if max_length is not None:
        settings["model_max_length"] = max_length
    state = json.loads(backend.to_str())
    # Settings of the last call.
    state["truncation"] = state["padding"] = None
    before = [] if state["normalizer"] is None else [state["normalizer"]]
    state["normalizer"] = {"type": "Sequence", "normalizers": [*_NORMALIZERS, *before]}
    probes = _probes(tokenizer)
    expected = tokenizer([normalize_whitespace(probe) for probe in probes])["input_ids"]
    for candidate in (state, _looking_for_tokens_afterwards(state)):
        made = PreTrainedTokenizerFast(
            tokenizer_object=Tokenizer.from_str(json.dumps(candidate)),
            model_input_names=inputs,
            padding_side="right",
            truncation_side=tokenizer.truncation_side,
            clean_up_tokenization_spaces=False,
            **settings,
        )
        if made(probes)["input_ids"] == expected:
            return made
    return None


def _looking_for_tokens_afterwards(state: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a tokenizer that looks for special tokens in normalised text.

    By default a text is split at special tokens first, and each part is normalised for itself: the
    blanks between a word and `<mask>` would be stripped as if they were at the end of the text,
    which matters to tokenizers whose tokens hold the blank before a word.
    """
    tokens = [{**token, "normalized": True} for token in state["added_tokens"]]
    return {**state, "added_tokens": tokens}


def _probes(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    probes = list(_ODD)
    for token in tokenizer.all_special_tokens:
        probes += [f" a \u00a0{token}\n b{token}c {token} ", f"{token}\t"]
    return probes
