"""Synonyms of words, from WordNet or from a file."""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from declutr.corpus.documents import SourceError, read_lines
from declutr.system import local_path

Synonyms = Callable[[str], tuple[str, ...]]
"""A function from a word in lower case to its synonyms, always in the same order.

It returns no synonyms for an unknown word.
"""


class NoSynonyms(ValueError):
    """Raised when synonyms cannot be read."""


def from_file(place: str | Path) -> Synonyms:
    """Read synonyms from a UTF-8 text file with lines `word<TAB>synonym synonym ...`.

    The case of the word does not matter, `_` stands for a space within a synonym, and blank lines
    are skipped. Several lines of the same word add up.

    # Raises

    `NoSynonyms` : if the file cannot be read, or a line has another form.
    """
    try:
        lines = list(read_lines(local_path(place)))
    except SourceError as error:
        raise NoSynonyms(f"Cannot read synonyms from '{place}': {error}") from error
    known: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        word, tab, others = line.partition("\t")
        word, synonyms = word.strip().lower(), others.split()
        if not (word and tab and synonyms):
            raise NoSynonyms(
                f"{place}, line {number}: expected 'word<TAB>synonym synonym ...', got {line!r}."
            )
        known[word] = _others(word, (*known.get(word, ()), *synonyms))
    return lambda word: known.get(word, ())


def from_wordnet() -> Synonyms:
    """Return the synonyms of WordNet (Fellbaum, 1998): the words of all senses of an English word.

    # Raises

    `NoSynonyms` : if nltk or its copy of WordNet is not installed.
    """
    ask = (
        "Run `pip install 'declutr[nltk]'` and `python -m nltk.downloader wordnet`, or give a file "
        "of lines 'word<TAB>synonym synonym ...' (synonyms)."
    )
    try:
        from nltk.corpus import wordnet
    except ImportError as error:
        raise NoSynonyms(f"WordNet needs nltk, which is not installed. {ask}") from error
    try:
        wordnet.ensure_loaded()
    except (LookupError, OSError) as error:  # The message of nltk has twenty lines.
        raise NoSynonyms(f"nltk has no WordNet on this machine. {ask}") from error

    @lru_cache(maxsize=100_000)
    def synonyms(word: str) -> tuple[str, ...]:
        senses: Any = wordnet.synsets(word)
        return _others(word, [lemma.name() for sense in senses for lemma in sense.lemmas()])

    return synonyms


def _others(word: str, synonyms: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Return the synonyms in their order, without repetitions and without the word itself."""
    spoken = dict.fromkeys(synonym.replace("_", " ") for synonym in synonyms)
    return tuple(synonym for synonym in spoken if synonym.lower() != word)
