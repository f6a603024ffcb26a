"""Tests of random subsets of rows."""

from itertools import pairwise

import numpy as np
import pytest
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError

from declutr.data.random_subset import RandomSubset

ROWS = np.arange(3, 203, 2)  # 100 rows, from 3 to 201


def test_a_smaller_subset_is_part_of_every_larger_one() -> None:
    parts = [RandomSubset(size).of(ROWS, "rows") for size in (1, 2, 10, 50, 99, 100)]
    assert [len(part) for part in parts] == [1, 2, 10, 50, 99, 100]
    for part, larger in pairwise(parts):
        assert set(part) <= set(larger)
        assert (np.diff(part) > 0).all()
    assert np.array_equal(parts[-1], ROWS)
    assert np.array_equal(RandomSubset(fraction=0.1).of(ROWS, "rows"), parts[2])


def test_the_seed_decides() -> None:
    drawn = {tuple(RandomSubset(10, seed=seed).of(ROWS, "rows").tolist()) for seed in range(20)}
    assert len(drawn) == 20
    assert tuple(RandomSubset(10, seed=0).of(ROWS, "rows").tolist()) in drawn
    assert not np.array_equal(RandomSubset(10).of(ROWS, "rows"), ROWS[:10])


def test_every_row_is_chosen_equally_often() -> None:
    counts = np.zeros(100)
    for seed in range(500):
        counts[(RandomSubset(20, seed=seed).of(ROWS, "rows") - 3) // 2] += 1
    assert abs(counts.mean() - 100) < 1e-9 and counts.min() > 60 and counts.max() < 140


@pytest.mark.parametrize("rows, fraction, expected", [(100, 0.004, 1), (7, 0.5, 4), (7, 1, 7)])
def test_fractions_are_rounded_to_at_least_one(rows: int, fraction: float, expected: int) -> None:
    assert len(RandomSubset(fraction=fraction).of(np.arange(rows), "rows")) == expected


def test_from_params_and_the_record() -> None:
    subset = RandomSubset.from_params(Params({"fraction": 0.25, "seed": 4}))
    assert subset.record(8) == {"size": None, "fraction": 0.25, "seed": 4, "of": 8}


def test_what_is_refused() -> None:
    for settings in ({}, {"size": 3, "fraction": 0.5}):
        with pytest.raises(ConfigurationError, match="of a subset; expected one of them"):
            RandomSubset(**settings)
    for settings in ({"size": 0}, {"fraction": 0.0}, {"fraction": 1.5}):
        with pytest.raises(ConfigurationError, match="Expected a subset of size 1 or more, or of"):
            RandomSubset(**settings)
    with pytest.raises(ConfigurationError, match=r"a.txt gives 100 rows, fewer than .* of 101"):
        RandomSubset(101).of(ROWS, "a.txt")
