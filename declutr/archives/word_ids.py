"""Token ids of texts, by a tokenizer that is asked about each different word once.

Most of the time that a static encoder takes is spent by its tokenizer. Tokenizers of BERT's kind
treat each word between white space alone, so that the ids of a text are those of its words, and
most words of a text have been met before.
"""

import json
import re
from collections.abc import Iterable
from itertools import chain

from declutr.archives.static_folder import loaded_tokenizer

_MOST_WORDS = 1 << 20  # that are kept: about 200 MB
# `str.split` takes these for white space, and BERT's normalisation removes them.
_REMOVED = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class WordIds(dict):
    """A function from texts to token ids, without special tokens; it keeps the ids of words.

    # Parameters

    tokenizer : the content of a `tokenizer.json`.
    """

    def __init__(self, tokenizer: str) -> None:
        super().__init__()
        self._tokenizer = loaded_tokenizer(tokenizer)
        self.by_words = _treats_words_alone(json.loads(tokenizer))
        """Whether the tokenizer treats each word alone; if not, it is asked for whole texts."""

    def __missing__(self, word: str) -> list[int]:
        ids = self._tokenizer.encode(word, add_special_tokens=False).ids
        if len(self) < _MOST_WORDS:
            self[word] = ids
        return ids

    def of(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        if not self.by_words:
            found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            return [one.ids for one in found]
        known, joined = self.__getitem__, chain.from_iterable
        return [list(joined(map(known, self._words(text)))) for text in texts]

    @staticmethod
    def _words(text: str) -> Iterable[str]:
        return (_REMOVED.sub("", text) if _REMOVED.search(text) else text).split()


def _treats_words_alone(tokenizer: dict) -> bool:
    """Return whether the ids of a text are those of its words, by what a tokenizer consists of."""
    normalizer, split = tokenizer.get("normalizer") or {}, tokenizer.get("pre_tokenizer") or {}
    plain = not any(
        token.get("lstrip")
        or token.get("rstrip")
        or token.get("single_word")
        or token["content"].split() != [token["content"]]
        for token in tokenizer.get("added_tokens", [])
    )
    bert = normalizer.get("type") == "BertNormalizer" and normalizer.get("clean_text", False)
    return bert and split.get("type") == "BertPreTokenizer" and plain
