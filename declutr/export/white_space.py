"""Normalisation of white space inside exported tokenizers.

This package applies `declutr.corpus.documents.normalize_whitespace` (`" ".join(text.split())`)
before every tokenizer. Other tools do not, so an exported tokenizer has to do it itself.
"""

import json
from typing import Any

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from declutr.corpus.documents import normalize_whitespace

# This is the white space of `str.split`. In the regular expressions of the tokenizers library, `\s`
# lacks U+001C to U+001F.
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
    """Return a copy of a tokenizer that normalises white space itself.

    For any text, its token ids are those that `tokenizer` gives for the text after
    `normalize_whitespace`.

    # Parameters

    tokenizer : the tokenizer of the trained model.
    inputs : the names of the tensors that it returns, such as `["input_ids", "attention_mask"]`.
    max_length : the maximum number of tokens of a text, including special tokens, or `None`.

    # Returns

    The tokenizer, or `None` if the token ids of some test texts differ, or if `tokenizer` is not
    backed by the tokenizers library.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    from tokenizers import Tokenizer

    settings: dict[str, Any] = {
        name: token
        for name, token in tokenizer.special_tokens_map.items()
        if isinstance(token, str)  # additional special tokens are in the state
    }
    if max_length is not None:
        settings["model_max_length"] = max_length
    state = json.loads(backend.to_str())
    # These were set by the last call of the tokenizer.
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
    """Return the state of a tokenizer that looks for special tokens after normalisation.

    By default the library splits a text at special tokens first and normalises each piece
    separately. The space between a word and `<mask>` would then be stripped as if it were at the
    end of the text, which matters to tokenizers whose tokens include the space before a word.
    """
    tokens = [{**token, "normalized": True} for token in state["added_tokens"]]
    return {**state, "added_tokens": tokens}


def _probes(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    probes = list(_ODD)
    for token in tokenizer.all_special_tokens:
        probes += [f" a \u00a0{token}\n b{token}c {token} ", f"{token}\t"]
    return probes
