"""Token ids of texts, by a tokenizer that is asked about each different word once.

Most of the time that a static encoder takes is spent by its tokenizer. Tokenizers of BERT's kind
treat each word between white space alone, so that the ids of a text are those of its words, and
most words of a text have been met before.
"""

import json
from collections.abc import Iterable
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np

from declutr.archives.static_folder import loaded_tokenizer

# `str.split` takes these for white space, and BERT's normalisation removes them.
_REMOVED = dict.fromkeys([0xB, 0xC, 0x1C, 0x1D, 0x1E, 0x1F, 0x85])
_REMOVED_CHARACTERS = [chr(code) for code in _REMOVED]


class WordIds:
    """A function from texts to token ids, without special tokens; it keeps the ids of words.

    # Parameters

    tokenizer : the content of a `tokenizer.json`.
    most : the number of characters of different words that are kept (about 25 bytes for each
        character of English). Words that would exceed it replace all others.
    """

    def __init__(self, tokenizer: str, most: int = 1 << 20) -> None:
        self._tokenizer = loaded_tokenizer(tokenizer)
        self._most = most
        self._known = _Words()
        self._learning = Lock()
        self.by_words = _treats_words_alone(json.loads(tokenizer))
        """Whether the tokenizer treats each word alone; if not, it is asked for whole texts."""

    def of(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all texts `(t,)`, int32, and the bounds `(n + 1,)` of each."""
        if not self.by_words:
            return _joined(self._encoded(texts))
        words = list(map(str.split, _cleaned(texts)))
        bounds = _bounds(map(len, words), len(words))
        known, numbers = self._numbers(words, int(bounds[-1]))
        ids, ends = known.ids_of(numbers)
        return ids, ends[bounds]

    def _numbers(self, words: list[list[str]], count: int) -> tuple["_Words", np.ndarray]:
        """Return the known words, among them these, and the number of each of these `(w,)`."""
        known, every = self._known, chain.from_iterable
        try:
            return known, np.fromiter(map(known.numbers.__getitem__, every(words)), np.int32, count)
        except KeyError:
            known = self._learned(set(every(words)))
        return known, np.fromiter(map(known.numbers.__getitem__, every(words)), np.int32, count)

    def _learned(self, words: set[str]) -> "_Words":
        """Return the known words, with these among them."""
        with self._learning:
            new = sorted(words.difference(self._known.numbers))
            if self._known.characters + sum(map(len, new)) > self._most:
                self._known, new = _Words(), sorted(words)
            self._known.add(new, self._encoded(new))
            return self._known

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [one.ids for one in found]


class _Words:
    """Words by number and their token ids; words are added while other threads look some up."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.characters = 0
        self._ids = np.zeros(1 << 10, np.int32)  # of all words, one after another, and free places
        self._ends = np.zeros(1 << 10, np.int64)  # `_ends[i]` is the first place of word i

    def add(self, words: list[str], ids: list[list[int]]) -> None:
        """Add words that are not known, with the token ids of each."""
        count = len(self.numbers)
        new, ends = _joined(ids)
        ends += self._ends[count]
        self._ids = _with(self._ids, int(self._ends[count]), new)
        self._ends = _with(self._ends, count, ends)
        self.characters += sum(map(len, words))
        # Only now, so that no other thread finds words without ids.
        self.numbers.update(zip(words, range(count, count + len(words)), strict=True))

    def ids_of(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of words by number `(t,)`, and the bounds `(w + 1,)` of each."""
        starts = self._ends[numbers]
        lengths = self._ends[numbers + 1] - starts
        bounds = _bounds(lengths, len(lengths))
        if bounds[-1] == len(numbers) and (lengths == 1).all():
            return self._ids[starts], bounds
        places = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], lengths)
        return self._ids[places], bounds


def _with(array: np.ndarray, start: int, values: np.ndarray) -> np.ndarray:
    """Return the array, or a larger copy of it, with values from `start` on."""
    end = start + len(values)
    if end > len(array):
        array = np.concatenate([array, np.zeros(end, array.dtype)])
    array[start:end] = values
    return array


def _joined(ids: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return lists of token ids in one array, and the bounds of each."""
    bounds = _bounds(map(len, ids), len(ids))
    return np.fromiter(chain.from_iterable(ids), np.int32, int(bounds[-1])), bounds


def _bounds(lengths: Iterable[int], count: int) -> np.ndarray:
    """Return 0 and the cumulative sums of so many lengths."""
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.fromiter(lengths, np.int64, count), out=bounds[1:])
    return bounds


def _cleaned(texts: list[str]) -> list[str]:
    """Return the texts without characters that BERT's normalisation removes and `split` splits."""
    together = "".join(texts)  # to search it takes less time than to search each text
    if not any(character in together for character in _REMOVED_CHARACTERS):
        return texts
    return [text.translate(_REMOVED) for text in texts]


def _treats_words_alone(tokenizer: dict[str, Any]) -> bool:
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
