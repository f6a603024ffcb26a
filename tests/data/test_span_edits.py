"""Tests of edits of spans: which words go, which move, and that all places are drawn."""

from collections import Counter

import numpy as np
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import given
from hypothesis import strategies as st

from declutr.data.augmentations import Augmentation
from declutr.data.span_edits import delete_spans, reorder_spans

lengths, numbers, seeds = st.integers(0, 120), st.integers(1, 8), st.integers(0, 2**30)
shares = st.sampled_from([0.01, 0.05, 0.1, 0.3, 0.9])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def runs(places: list[int]) -> list[int]:
    """The lengths of runs of consecutive numbers."""
    cuts = np.flatnonzero(np.diff(places) != 1) + 1
    return [len(run) for run in np.split(np.array(places), cuts)] if places else []


@given(lengths, numbers, shares, seeds)
def test_deleted_spans_have_the_length(n: int, spans: int, share: float, seed: int) -> None:
    words = [str(place) for place in range(n)]
    left = delete_spans(words, spans, share, rng(seed))
    length = max(1, int(share * n + 1e-9))
    gone = sorted(set(range(n)) - set(map(int, left)))
    assert left == [word for word in words if int(word) not in gone]  # in order, none twice
    assert len(gone) == length * max(0, min(spans, (n - 1) // length))
    assert all(run % length == 0 for run in runs(gone))  # spans beside each other make one run
    assert bool(left) == bool(words)


@given(lengths, numbers, shares, seeds)
def test_reordered_spans_are_a_permutation(n: int, pairs: int, share: float, seed: int) -> None:
    words = [str(place) for place in range(n)]
    moved = reorder_spans(words, pairs, share, rng(seed))
    assert sorted(moved) == sorted(words)
    length = max(1, int(share * n + 1e-9))
    elsewhere = [place for place, word in enumerate(moved) if int(word) != place]
    assert len(elsewhere) == 2 * length * min(pairs, n // (2 * length))
    for place in elsewhere:  # what stands where a word was is where that word stands
        assert moved[int(moved[place])] == words[place]


def test_every_way_to_place_spans_is_equally_likely() -> None:
    drawn = Counter("".join(delete_spans("abcdef", 2, 0.4, rng(seed))) for seed in range(1200))
    assert drawn.keys() == {"ab", "ad", "af", "cd", "cf", "ef"}  # without two pairs of neighbours
    assert min(drawn.values()) > 150


def test_settings_of_the_paper_are_the_defaults() -> None:
    words = [str(place) for place in range(100)]
    deleted, moved = (
        Augmentation.from_params(Params({"type": kind}))(" ".join(words), rng()).split()
        for kind in ("span_deletion", "span_reordering")
    )
    assert len(deleted) == 100 - 5 * 5
    assert sum(a != b for a, b in zip(words, moved, strict=True)) == 2 * 5 * 5


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"type": "span_deletion", "spans": 0}, "spans must be at least 1 .* got 0 and 0.05"),
        ({"type": "span_deletion", "share": 1.0}, "share above 0 and below 1, got 5 and 1.0"),
        ({"type": "span_reordering", "pairs": -1}, "pairs must be at least 1 .* got -1 and 0.05"),
        ({"type": "chain", "augmentations": []}, "'chain' got no augmentations. Name at least one"),
        ({"type": "masked_lm", "transformer": "x", "share": 0}, "share must be above 0 .* got 0"),
        ({"type": "masked_lm", "transformer": "x", "top_k": 0}, "must be at least 1, got 0 and 32"),
    ],
)
def test_settings_out_of_range_are_told(settings: dict, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        Augmentation.from_params(Params(settings))
