"""Token ids of texts, by a tokenizer that is asked about each different word once.

Most of the time that a static encoder takes is spent by its tokenizer. Tokenizers of BERT's kind
treat each word between white space alone, so that the ids of a text are those of its words, and
most words of a text have been met before.
"""

from itertools import accumulate, chain
from string import punctuation
from threading import Lock
from typing import Any

import numpy as np

from declutr.system import free_after_fork

# `str.split` takes these for white space, and BERT's normalisation removes them.
_REMOVED = dict.fromkeys([0xB, 0xC, 0x1C, 0x1D, 0x1E, 0x1F, 0x85])
_REMOVED_CHARACTERS = [chr(code) for code in _REMOVED]
_LENGTH_BITS = 24
_LENGTHS = (1 << _LENGTH_BITS) - 1  # a mask; a word of more tokens would have 16 MB
_LEARNING = free_after_fork(Lock())  # held while words are added, by one thread after another


class WordIds:
    """A function from texts to token ids, without special tokens; it keeps the ids of words.

    # Parameters

    tokenizer : a tokenizer of the `tokenizers` package, as `loaded_tokenizer` returns it.
    most : the number of characters of different words that are kept (about 25 bytes for each
        character of English). Words that would exceed it replace all others.
    """

    def __init__(self, tokenizer: Any, most: int = 1 << 20) -> None:
        self._tokenizer = tokenizer
        self._most = most
        self._known = _Words()
        self.by_words = _treats_words_alone(tokenizer)
        """Whether the tokenizer treats each word alone; if not, it is asked for whole texts."""
        self._vocabulary = _vocabulary(tokenizer) if self.by_words else None

    def __reduce__(self) -> tuple[Any, ...]:
        return WordIds, (self._tokenizer, self._most)  # not the words, which are many

    def of(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of all texts `(t,)`, int32, and the bounds `(n + 1,)` of each."""
        if not self.by_words:
            return _joined(self._encoded(texts))
        words = list(map(str.split, _cleaned(texts)))
        known, places = self._places(words)
        starts, lengths = places >> _LENGTH_BITS, places & _LENGTHS
        ends = np.zeros(len(places) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        ids = known.ids[np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)]
        return ids, ends[[0, *accumulate(map(len, words))]]

    def _places(self, words: list[list[str]]) -> tuple["_Words", np.ndarray]:
        """Return known words with these among them, and the place of each of these `(w,)`."""
        known, count, every = self._known, sum(map(len, words)), chain.from_iterable
        try:
            return known, np.fromiter(map(known.places.__getitem__, every(words)), np.int64, count)
        except KeyError:
            known = self._learned(set(every(words)))
        return known, np.fromiter(map(known.places.__getitem__, every(words)), np.int64, count)

    def _learned(self, words: set[str]) -> "_Words":
        """Return the known words, with these among them."""
        with _LEARNING:
            new = sorted(words.difference(self._known.places))
            if self._known.characters + sum(map(len, new)) > self._most:
                self._known, new = _Words(), sorted(words)
            self._known.add(new, self._ids_of_words(new))
            return self._known

    def _ids_of_words(self, words: list[str]) -> list[list[int]]:
        """Return the token ids of each word."""
        if self._vocabulary is None:
            return self._encoded(words)
        found = list(map(self._vocabulary.ids_of, words))
        others = [word for word, ids in zip(words, found, strict=True) if ids is None]
        encoded = iter(self._encoded(others))
        return [next(encoded) if ids is None else ids for ids in found]

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        found = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [one.ids for one in found]


class _Vocabulary:
    """Token ids of words of ASCII letters and digits that are tokens, with a mark behind or not.

    To look them up takes a fraction of the time in which the tokenizer encodes them.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._id_of = tokenizer.token_to_id
        self._lowers = tokenizer.normalizer.lowercase
        self._longest = getattr(tokenizer.model, "max_input_chars_per_word", 100)
        # Added tokens are found inside of words too.
        marks = set(punctuation).difference(*_added(tokenizer))
        self._marks = {mark: found for mark in marks if (found := self._id_of(mark)) is not None}

    def ids_of(self, word: str) -> list[int] | None:
        """Return the token ids of a word; `None` if the tokenizer must be asked."""
        if len(word) > self._longest or not word.isascii():
            return None
        plain, marks = word, []
        if not word.isalnum():
            plain, mark = word[:-1], self._marks.get(word[-1])
            if mark is None or not plain.isalnum():
                return None
            marks = [mark]
        found = self._id_of(plain.lower() if self._lowers else plain)
        return None if found is None else [found, *marks]


def _vocabulary(tokenizer: Any) -> _Vocabulary | None:
    """Return the vocabulary of a tokenizer, if it leaves words whole that are tokens."""
    if type(tokenizer.model).__name__ not in ("WordPiece", "WordLevel"):
        return None
    return None if any(map(str.isalnum, _added(tokenizer))) else _Vocabulary(tokenizer)


def _added(tokenizer: Any) -> list[str]:
    """Return the added tokens, as they are written and as they are found in normalised texts."""
    written = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    return [*written, *map(tokenizer.normalizer.normalize_str, written)]


class _Words:
    """Words and their token ids; words are added while other threads look some up."""

    def __init__(self) -> None:
        self.ids = np.zeros(1 << 12, np.int32)
        """The token ids of all words, one after another, and free places."""
        self.places: dict[str, int] = {}
        """Where the ids of each word start, shifted by `_LENGTH_BITS`, plus their number."""
        self.characters = 0
        self._filled = 0

    def add(self, words: list[str], ids: list[list[int]]) -> None:
        """Add words that are not known, with the token ids of each."""
        new, bounds = _joined(ids)
        bounds += self._filled
        filled = int(bounds[-1])
        if filled > len(self.ids):
            self.ids = np.concatenate([self.ids, np.zeros(filled, np.int32)])
        self.ids[self._filled : filled] = new
        self._filled = filled
        self.characters += sum(map(len, words))
        places = (bounds[:-1] << _LENGTH_BITS) + np.diff(bounds)
        # Only now, so that no other thread finds words without ids.
        self.places.update(zip(words, places.tolist(), strict=True))


def _joined(ids: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return lists of token ids in one array, and the bounds of each."""
    bounds = np.array([0, *accumulate(map(len, ids))])
    return np.fromiter(chain.from_iterable(ids), np.int32, int(bounds[-1])), bounds


def _cleaned(texts: list[str]) -> list[str]:
    """Return the texts without characters that BERT's normalisation removes and `split` splits."""
    together = "".join(texts)  # to search it takes less time than to search each text
    if not any(character in together for character in _REMOVED_CHARACTERS):
        return texts
    return [text.translate(_REMOVED) for text in texts]


def _treats_words_alone(tokenizer: Any) -> bool:
    """Return whether the ids of a text are those of its words, by what a tokenizer consists of."""
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    if not isinstance(tokenizer.pre_tokenizer, BertPreTokenizer):
        return False
    normalizer = tokenizer.normalizer
    return (
        isinstance(normalizer, BertNormalizer)
        and normalizer.clean_text
        and not any(
            token.lstrip
            or token.rstrip
            or token.single_word
            or token.content.split() != [token.content]
            for token in tokenizer.get_added_tokens_decoder().values()
        )
    )
