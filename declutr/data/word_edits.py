"""Easy data augmentation: four edits of the words of a text (EDA; Wei & Zou, 2019).

"EDA: Easy Data Augmentation Techniques for Boosting Performance on Text Classification Tasks",
section 2. Words are what stands between spaces. Unlike the public code, which lowers the case of
all letters and drops digits and punctuation, these edits leave the words that they do not change
as they are.
"""

import re
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
from allennlp.common.checks import ConfigurationError

from declutr.data.augmentations import Augmentation
from declutr.data.synonyms import NoSynonyms, Synonyms, from_file, from_wordnet

_WORD = re.compile(r"(\W*)(.*?)(\W*)", re.DOTALL)

_STOP_WORDS = (
    "a about above after again against all am an and any are aren't as at be because been before "
    "being below between both but by can can't could couldn't did didn't do does doesn't doing "
    "don't down during each few for from further had hadn't has hasn't have haven't having he "
    "he's her here hers herself him himself his how i i'm i've if in into is isn't it it's its "
    "itself just let's may me might more most must mustn't my myself no nor not now of off on "
    "once only or other our ours ourselves out over own same shall she she's should shouldn't so "
    "some such than that that's the their theirs them themselves then there there's these they "
    "they're this those through to too under until up very was wasn't we we're were weren't what "
    "what's when where which while who who's whom why will with won't would wouldn't you you're "
    "your yours yourself yourselves"
)
ENGLISH_STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words of grammar rather than of meaning: they are not replaced."""


def number_of_edits(alpha: float, words: int) -> int:
    """`max(1, floor(alpha * words))`, as in the public code (section 2: `n = alpha * l`)."""
    return max(1, int(alpha * words + 1e-9))  # 0.29 * 100 is 28.999999999999996


def replace_synonyms(
    words: Sequence[str],
    edits: int,
    synonyms: Synonyms,
    rng: np.random.Generator,
    stop_words: frozenset[str] = ENGLISH_STOP_WORDS,
) -> list[str]:
    """Synonym replacement: `edits` words, fewer if fewer have a synonym, become one of theirs.

    Stop words stay. What surrounds a word, such as a comma, and its initial capital are kept.
    """
    edited = list(words)
    places = _with_synonyms(words, synonyms, stop_words)
    for place in rng.permutation(places)[:edits].tolist():
        before, word, after = _taken_apart(words[place])
        synonym = _one_of(synonyms(word.lower()), rng)
        if word[0].isupper():
            synonym = synonym[0].upper() + synonym[1:]
        edited[place] = before + synonym + after
    return edited


def insert_synonyms(
    words: Sequence[str],
    edits: int,
    synonyms: Synonyms,
    rng: np.random.Generator,
    stop_words: frozenset[str] = ENGLISH_STOP_WORDS,
) -> list[str]:
    """Random insertion: `edits` times a synonym of a random word goes to a random place.

    Stop words are not among those words. Without a word that has a synonym, nothing changes.
    """
    edited = list(words)
    places = _with_synonyms(words, synonyms, stop_words)
    for _ in range(edits if places else 0):
        _, word, _ = _taken_apart(words[places[int(rng.integers(len(places)))]])
        edited.insert(int(rng.integers(len(edited) + 1)), _one_of(synonyms(word.lower()), rng))
    return edited


def swap_words(words: Sequence[str], edits: int, rng: np.random.Generator) -> list[str]:
    """Random swap: `edits` times two words at different places change places."""
    edited = list(words)
    for _ in range(edits if len(edited) > 1 else 0):
        one, other = rng.choice(len(edited), size=2, replace=False).tolist()
        edited[one], edited[other] = edited[other], edited[one]
    return edited


def delete_words(words: Sequence[str], probability: float, rng: np.random.Generator) -> list[str]:
    """Random deletion: each word with this probability, but one at least stays."""
    if not words:
        return []
    stays = rng.random(len(words)) >= probability
    if not stays.any():
        stays[int(rng.integers(len(words)))] = True
    return [word for word, here in zip(words, stays.tolist(), strict=True) if here]


@Augmentation.register("eda")
class EasyDataAugmentation(Augmentation):
    """One of the four edits, drawn for each text among those whose strength is not 0.

    A text of l words sees `max(1, alpha * l)` replacements, insertions or swaps; a deletion takes
    each word with probability alpha. Spaces between words become single ones. A text without a
    word stays as it is, and so does one that has no word with a synonym if the edit drawn needs
    one.

    # Parameters

    replacement, insertion, swap, deletion : alpha of each edit, in [0, 1); 0 leaves it out. The
        paper recommends 0.1 (section 4.1), and 0.05 for large sets of training data.
    synonyms : a file of lines `word<TAB>synonym synonym ...`; WordNet, by nltk, if `None`. Neither
        is looked for unless words are replaced or inserted, and not before the first text.
    stop_words : words that are not replaced and whose synonyms are not inserted; English ones by
        default.

    # Raises

    `ConfigurationError` : a strength out of range, or all of them 0; with the first text, no
        synonyms.
    """

    def __init__(
        self,
        replacement: float = 0.1,
        insertion: float = 0.1,
        swap: float = 0.1,
        deletion: float = 0.1,
        synonyms: Optional[str] = None,
        stop_words: Optional[list[str]] = None,
    ) -> None:
        names = ("replacement", "insertion", "swap", "deletion")
        alphas = dict(zip(names, (replacement, insertion, swap, deletion), strict=True))
        for name, alpha in alphas.items():
            if not 0 <= alpha < 1:
                raise ConfigurationError(f"{name} must be at least 0 and below 1, got {alpha}.")
        self._edits = [(name, alpha) for name, alpha in alphas.items() if alpha]
        if not self._edits:
            raise ConfigurationError(
                "All of replacement, insertion, swap and deletion are 0, which edits nothing. Set "
                "one of them above 0."
            )
        self._place = synonyms
        self._stop_words = ENGLISH_STOP_WORDS
        if stop_words is not None:
            self._stop_words = frozenset(word.lower() for word in stop_words)
        self._found: Optional[Synonyms] = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_found": None}  # looked for again

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        words = text.split()
        if not words:
            return text
        name, alpha = self._edits[int(rng.integers(len(self._edits)))]
        edits = number_of_edits(alpha, len(words))
        if name == "replacement":
            words = replace_synonyms(words, edits, self._synonyms(), rng, self._stop_words)
        elif name == "insertion":
            words = insert_synonyms(words, edits, self._synonyms(), rng, self._stop_words)
        elif name == "swap":
            words = swap_words(words, edits, rng)
        else:
            words = delete_words(words, alpha, rng)
        return " ".join(words)

    def _synonyms(self) -> Synonyms:
        if self._found is None:
            try:
                self._found = from_wordnet() if self._place is None else from_file(self._place)
            except NoSynonyms as error:
                raise ConfigurationError(
                    f"{error} Without synonyms, set replacement and insertion to 0."
                ) from error
        return self._found


def _taken_apart(word: str) -> tuple[str, str, str]:
    """`'("House,'` as `'("'`, `'House'` and `','`."""
    match = _WORD.fullmatch(word)
    assert match is not None  # all three parts may be empty
    before, core, after = match.groups()
    return before, core, after


def _with_synonyms(
    words: Sequence[str], synonyms: Synonyms, stop_words: frozenset[str]
) -> list[int]:
    """Places of the words that have one and are no stop words."""
    cores = [_taken_apart(word)[1].lower() for word in words]
    return [
        place
        for place, core in enumerate(cores)
        if core and core not in stop_words and synonyms(core)
    ]


def _one_of(synonyms: Sequence[str], rng: np.random.Generator) -> str:
    return synonyms[int(rng.integers(len(synonyms)))]
