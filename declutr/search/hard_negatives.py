"""Hard negatives of pairs: near candidates that are no known positives.

    candidates = BM25Candidates(texts)
    for negatives in mine_negatives(pairs, candidates, Choice(num_negatives=2)):
        ...  # a list of at most two texts for each pair

The ranks and margins are those of NV-Retriever (Moreira et al., 2024, arXiv:2407.15831, section 4)
and of `mine_hard_negatives` of sentence-transformers.
"""

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from declutr.corpus.text_pairs import TextPair
from declutr.search.candidates import Candidates, Found
from declutr.search.index_files import SearchError
from declutr.system.worker_processes import default_workers, ordered_map

_BLOCK = 256  # pairs
_SPARE = 16  # candidates beyond the pool, most often enough for known positives


@dataclass(frozen=True)
class Choice:
    """The rules by which candidates become negatives.

    Ranks count candidates without the anchor and its known positives, from the nearest one.

    # Parameters

    num_negatives : the most negatives of a pair.
    skip : leave out so many of the nearest candidates, many of which may be unlabelled positives.
    pool : the number of candidates after those, among which negatives are chosen.
    margin : leave out candidates whose score is above the positive's less this share of it; 0.05
        is NV-Retriever's, `None` allows any score.
    max_score : leave out candidates above this score; `None` allows any.
    random : draw negatives from the pool with equal probability, instead of taking the nearest.
    seed : of the draws. Those of a pair depend on the seed and the number of the pair alone.

    # Raises

    `SearchError` : if a number is out of range.
    """

    num_negatives: int = 1
    skip: int = 0
    pool: int = 50
    margin: float | None = None
    max_score: float | None = None
    random: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("num_negatives", 1), ("skip", 0), ("seed", 0)):
            if (value := getattr(self, name)) < least:
                raise SearchError(f"Expected {name} of at least {least}, got {value}.")
        if self.pool < self.num_negatives:
            raise SearchError(
                f"A pool of {self.pool} candidates cannot give {self.num_negatives} negatives. "
                "Expected a pool at least as large as num_negatives."
            )
        if self.margin is not None and not 0 <= self.margin <= 1:
            raise SearchError(f"margin is a share of the positive's score, got {self.margin:g}.")
        if self.max_score is not None and math.isnan(self.max_score):
            raise SearchError("Expected a number as max_score, got NaN.")

    def negatives(self, found: Found, known: set[str], number: int) -> list[str]:
        """Return the negatives of one pair, nearest first.

        # Parameters

        found : its candidates.
        known : the anchor and its positives, as `_folded` makes them.
        number : the number of the pair.
        """
        places = [place for place, text in enumerate(found.texts) if _unknown(text, known)]
        highest = math.inf if self.max_score is None else self.max_score
        if self.margin is not None:  # Cosines may be negative, hence the absolute value.
            highest = min(highest, found.positive - self.margin * abs(found.positive))
        pool = places[self.skip : self.skip + self.pool]
        fit = [place for place in pool if found.scores[place] <= highest]
        if self.random and len(fit) > self.num_negatives:
            rng = np.random.default_rng((self.seed, number))
            fit = [fit[i] for i in sorted(rng.choice(len(fit), self.num_negatives, replace=False))]
        return [found.texts[place] for place in fit[: self.num_negatives]]


def known_positives(pairs: Sequence[TextPair]) -> dict[str, set[str]]:
    """Return, for each anchor, itself and all texts that a pair says belong to it, all folded.

    These are its positives, and the anchors that it is the positive of.

    >>> known = known_positives([TextPair("a", "b"), TextPair("a", "c"), TextPair("c", "d")])
    >>> sorted(known["a"]), sorted(known["c"])
    (['a', 'b', 'c'], ['a', 'c', 'd'])
    """
    both = [(_folded(pair.anchor), _folded(pair.positive)) for pair in pairs]
    known = {anchor: {anchor} for anchor, _ in both}
    for anchor, positive in both:
        known[anchor].add(positive)
        if positive in known:
            known[positive].add(anchor)
    return known


def _folded(text: str) -> str:
    """Return a text without what people, or uncased models, see no difference in.

    That is upper case, and the forms of Unicode: `é` is one character or two (NFC and NFD).
    """
    return unicodedata.normalize("NFKC", text).casefold()


def _unknown(text: str, known: set[str]) -> bool:
    return _folded(text) not in known


def mine_negatives(
    pairs: Sequence[TextPair], candidates: Candidates, choice: Choice, start: int = 0
) -> Iterator[list[str]]:
    """Yield the negatives of each pair, in order.

    BM25 uses all cores (`DECLUTR_WORKERS` sets another number of processes). Memory does not grow
    with the number of pairs, beyond the pairs and candidates themselves.

    # Parameters

    pairs : pairs of texts without repeated white space, as readers give them.
    candidates : where negatives come from.
    choice : which candidates become negatives.
    start : the number of the first pair to search for. What is yielded does not depend on it.
    """
    search = partial(_block, pairs, known_positives(pairs), candidates, choice)
    blocks = range(start, len(pairs), _BLOCK)
    workers = default_workers() if candidates.forks and len(blocks) > 1 else 1
    if workers == 1:
        yield from chain.from_iterable(map(search, blocks))
        return
    with closing(ordered_map(search, blocks, workers)) as found:  # type: ignore[type-var]
        yield from chain.from_iterable(found)


def _block(
    pairs: Sequence[TextPair],
    known: Mapping[str, set[str]],
    candidates: Candidates,
    choice: Choice,
    first: int,
) -> list[list[str]]:
    """Return the negatives of the block of pairs that begins with number `first`."""
    block = pairs[first : first + _BLOCK]
    anchors = [pair.anchor for pair in block]
    positives = None if choice.margin is None else [pair.positive for pair in block]
    theirs = [known[_folded(anchor)] for anchor in anchors]
    wanted = choice.skip + choice.pool
    found: dict[int, Found] = {}
    # Known positives and equal lines take places that ranks do not count. More are looked for where
    # they lack alone: what approximate search finds follows from their number.
    lacking, count = list(range(len(block))), wanted + _SPARE
    while lacking:
        of_these = None if positives is None else [positives[place] for place in lacking]
        more = candidates.find([anchors[place] for place in lacking], of_these, count)
        found.update(zip(lacking, more, strict=True))
        lacking = [
            place
            for place, each in zip(lacking, more, strict=True)
            if not each.complete
            and sum(_unknown(text, theirs[place]) for text in each.texts) < wanted
        ]
        count *= 4
    return [choice.negatives(found[place], own, first + place) for place, own in enumerate(theirs)]
