"""Edits of spans of words: deletion, and reordering (CLEAR; Wu et al., 2020).

The source is "CLEAR: Contrastive Learning for Sentence Representation", whose experiments delete
five spans of 5 % of the text each, or switch five pairs of such spans. Words are separated by white
space. The paper puts a token [DEL] in the place of what it deletes; here nothing is left.
"""

from collections.abc import Sequence

import numpy as np
from allennlp.common.checks import ConfigurationError

from declutr.data.augmentations import Augmentation
from declutr.data.word_edits import number_of_edits


def delete_spans(
    words: Sequence[str], spans: int, share: float, rng: np.random.Generator
) -> list[str]:
    """Delete spans of words that do not overlap, all places being equally likely.

    Each has `max(1, floor(share * words))` words. Fewer spans are deleted where no word would stay.

    # Parameters

    words : the words of a text.
    spans : the number of spans.
    share : the length of a span as a share of the words, in (0, 1).
    rng : the source of random numbers.
    """
    length = number_of_edits(share, len(words))
    starts = _starts(len(words), min(spans, (len(words) - 1) // length), length, rng)
    gone = {place for start in starts for place in range(start, start + length)}
    return [word for place, word in enumerate(words) if place not in gone]


def reorder_spans(
    words: Sequence[str], pairs: int, share: float, rng: np.random.Generator
) -> list[str]:
    """Switch the two spans of each of some pairs of spans that do not overlap.

    Each span has `max(1, floor(share * words))` words. Fewer pairs are switched where there is no
    room for more.

    # Parameters

    words : the words of a text.
    pairs : the number of pairs of spans.
    share : the length of a span as a share of the words, in (0, 1).
    rng : the source of random numbers.
    """
    length = number_of_edits(share, len(words))
    starts = _starts(len(words), 2 * min(pairs, len(words) // (2 * length)), length, rng)
    mixed = rng.permutation(starts).tolist()
    moved = list(words)
    for one, other in zip(mixed[::2], mixed[1::2], strict=True):
        moved[one : one + length] = words[other : other + length]
        moved[other : other + length] = words[one : one + length]
    return moved


def _starts(words: int, spans: int, length: int, rng: np.random.Generator) -> list[int]:
    """Draw where spans of a length begin, in order: one of all ways to place them, uniformly."""
    if spans < 1:
        return []
    # A way to place spans is a choice of places where each span is a single word.
    places = np.sort(rng.choice(words - spans * (length - 1), size=spans, replace=False))
    return (places + np.arange(spans) * (length - 1)).tolist()


class SpanEdit(Augmentation):
    """A base class of augmentations that edit spans of equal lengths."""

    def __init__(self, name: str, number: int, share: float) -> None:
        if number < 1 or not 0 < share < 1:
            raise ConfigurationError(
                f"{name} must be at least 1 and share above 0 and below 1, got {number} and "
                f"{share}."
            )
        self._number, self._share = number, share


@Augmentation.register("span_deletion")
class SpanDeletion(SpanEdit):
    """An augmentation that deletes spans of words; see `delete_spans`.

    White space between words becomes a single space. At least one word stays. (Words alone are
    deleted by `eda` with its other edits at 0.)

    # Parameters

    spans : the number of spans to delete.
    share : the length of a span as a share of the words of the text, in (0, 1).

    # Raises

    `ConfigurationError` : if a parameter is out of range.
    """

    def __init__(self, spans: int = 5, share: float = 0.05) -> None:
        super().__init__("spans", spans, share)

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        words = text.split()
        return " ".join(delete_spans(words, self._number, self._share, rng))


@Augmentation.register("span_reordering")
class SpanReordering(SpanEdit):
    """An augmentation that switches pairs of spans of words; see `reorder_spans`.

    White space between words becomes a single space.

    # Parameters

    pairs : the number of pairs to switch.
    share : the length of a span as a share of the words of the text, in (0, 1).

    # Raises

    `ConfigurationError` : if a parameter is out of range.
    """

    def __init__(self, pairs: int = 5, share: float = 0.05) -> None:
        super().__init__("pairs", pairs, share)

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        return " ".join(reorder_spans(text.split(), self._number, self._share, rng))
