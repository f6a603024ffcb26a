"""Easy data augmentation: four random edits of the words of a text (EDA; Wei & Zou, 2019).

The source is "EDA: Easy Data Augmentation Techniques for Boosting Performance on Text
Classification Tasks", section 2. Words are separated by white space. The public code lowers the
case of all letters and drops digits and punctuation; these edits leave unchanged words as they are.
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
"""English words of grammar rather than of meaning, which are not replaced."""


def number_of_edits(alpha: float, words: int) -> int:
    """Return `max(1, floor(alpha * words))`, the number of edits of a text.

    Section 2 of the paper has `n = alpha * l`; the rounding is that of the public code.
    """
    return max(1, int(alpha * words + 1e-9))  # In floats, 0.29 * 100 is below 29.


def replace_synonyms(
    words: Sequence[str],
    edits: int,
    synonyms: Synonyms,
    rng: np.random.Generator,
    stop_words: frozenset[str] = ENGLISH_STOP_WORDS,
) -> list[str]:
    """Replace `edits` random words by one of their synonyms each (synonym replacement).

    Fewer words are replaced if fewer have a synonym. Stop words stay. Punctuation around a word and
    its initial capital are kept.

    # Parameters

    words : the words of a text.
    edits : the number of words to replace.
    synonyms : gives the synonyms of a word in lower case.
    rng : the source of random numbers.
    stop_words : words in lower case that are not replaced.
    """
    edited = list(words)
    places = _with_synonyms(words, synonyms, stop_words)
    for place in rng.permutation(places)[:edits].tolist():
        before, word, after = taken_apart(words[place])
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
    """Insert a synonym of a random word at a random place, `edits` times (random insertion).

    Synonyms of stop words are not inserted. If no word has a synonym, the words stay as they are.

    # Parameters

    words : the words of a text.
    edits : the number of insertions.
    synonyms : gives the synonyms of a word in lower case.
    rng : the source of random numbers.
    stop_words : words in lower case whose synonyms are not inserted.
    """
    edited = list(words)
    places = _with_synonyms(words, synonyms, stop_words)
    for _ in range(edits if places else 0):
        _, word, _ = taken_apart(words[places[int(rng.integers(len(places)))]])
        edited.insert(int(rng.integers(len(edited) + 1)), _one_of(synonyms(word.lower()), rng))
    return edited


def swap_words(words: Sequence[str], edits: int, rng: np.random.Generator) -> list[str]:
    """Swap two words at different random places, `edits` times (random swap)."""
    edited = list(words)
    for _ in range(edits if len(edited) > 1 else 0):
        one, other = rng.choice(len(edited), size=2, replace=False).tolist()
        edited[one], edited[other] = edited[other], edited[one]
    return edited


def delete_words(words: Sequence[str], probability: float, rng: np.random.Generator) -> list[str]:
    """Delete each word with the given probability (random deletion).

    If none would stay, one random word does.
    """
    if not words:
        return []
    stays = rng.random(len(words)) >= probability
    if not stays.any():
        stays[int(rng.integers(len(words)))] = True
    return [word for word, here in zip(words, stays.tolist(), strict=True) if here]


@Augmentation.register("eda")
class EasyDataAugmentation(Augmentation):
    """An augmentation that makes one of the four edits of EDA, drawn anew for each text.

    It draws among the edits whose strength alpha is not 0. A text of l words gets `max(1,
    floor(alpha * l))` replacements, insertions or swaps; a deletion removes each word with
    probability alpha. White space between words becomes a single space. A text without words stays
    as it is; so does one whose words have no synonyms, if the edit needs them.

    # Parameters

    replacement, insertion, swap, deletion : alpha of each edit, in [0, 1); 0 leaves it out. The
        public code has 0.1 for each by default.
    synonyms : a file of lines `word<TAB>synonym synonym ...`; `None` for WordNet, through nltk. It
        is read when the first text needs a synonym.
    stop_words : words that are not replaced and whose synonyms are not inserted; English ones by
        default.

    # Raises

    `ConfigurationError` : if a strength is out of range, or all are 0. When the first text needs
        synonyms: if there are none.
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
        return {**vars(self), "_found": None}  # A worker reads the synonyms again.

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


def taken_apart(word: str) -> tuple[str, str, str]:
    """Split a word such as `("House,` into `("`, `House` and `,`."""
    match = _WORD.fullmatch(word)
    assert match is not None  # Each of the three parts may be empty.
    before, core, after = match.groups()
    return before, core, after


def _with_synonyms(
    words: Sequence[str], synonyms: Synonyms, stop_words: frozenset[str]
) -> list[int]:
    """Return the places of the words that have a synonym and are not stop words."""
    cores = [taken_apart(word)[1].lower() for word in words]
    return [
        place
        for place, core in enumerate(cores)
        if core and core not in stop_words and synonyms(core)
    ]


def _one_of(synonyms: Sequence[str], rng: np.random.Generator) -> str:
    return synonyms[int(rng.integers(len(synonyms)))]
