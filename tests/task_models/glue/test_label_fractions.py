"""Tests of stratified fractions of rows, for any labels."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.task_models.glue.labelled_rows import fraction_of_rows

classes = st.lists(st.sampled_from("abc"), min_size=1, max_size=80)
fractions = st.floats(0.001, 1)
seeds = st.integers(0, 2**32)


class TestClasses:
    @given(labels=classes, fraction=fractions, seed=seeds)
    def test_each_class_keeps_its_share_and_at_least_one_row(self, labels, fraction, seed):
        chosen = fraction_of_rows(labels, fraction, seed)
        assert chosen == sorted(set(chosen)) == fraction_of_rows(labels, fraction, seed)
        taken = Counter(labels[row] for row in chosen)
        for label, count in Counter(labels).items():
            assert taken[label] >= 1 and abs(taken[label] - max(1, fraction * count)) <= 0.5

    @given(labels=classes, pair=st.tuples(fractions, fractions), seed=seeds)
    def test_a_smaller_fraction_is_part_of_a_larger_one(self, labels, pair, seed):
        smaller, larger = (fraction_of_rows(labels, one, seed) for one in sorted(pair))
        assert set(smaller) <= set(larger)

    @given(labels=classes, seed=seeds)
    def test_a_fraction_of_1_keeps_all_rows(self, labels, seed):
        assert fraction_of_rows(labels, 1, seed) == list(range(len(labels)))

    def test_another_seed_chooses_others(self):
        labels = ["a", "b"] * 100
        draws = {tuple(fraction_of_rows(labels, 0.1, seed)) for seed in range(10)}
        assert len(draws) == 10

    def test_every_row_is_as_likely(self):
        labels = ["a"] * 10 + ["b"] * 30
        times = Counter(row for seed in range(600) for row in fraction_of_rows(labels, 0.2, seed))
        assert min(times[row] for row in range(40)) > 80  # 120 expected, deviation about 10


class TestScores:
    def test_every_tenth_of_the_scores_keeps_its_share(self):
        scores = np.random.default_rng(0).permutation(200) / 40.0
        chosen = scores[fraction_of_rows(scores.tolist(), 0.1, 0)]
        assert np.histogram(chosen, bins=10, range=(0, 5))[0].tolist() == [2] * 10

    @given(
        scores=st.lists(st.sampled_from([0.0, 1.5, 5.0]) | st.floats(0, 5), min_size=1),
        fraction=fractions,
    )
    def test_any_scores_can_be_divided(self, scores, fraction):
        chosen = fraction_of_rows(scores, fraction, 0)
        assert 1 <= len(chosen) <= len(scores) and abs(len(chosen) - fraction * len(scores)) <= 10


@pytest.mark.parametrize("fraction", [0, -0.1, 1.5, 10, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction):
    with pytest.raises(
        ValueError, match=r"expected a share above 0 and at most 1, such as 0\.1 for"
    ):
        fraction_of_rows(["a"], fraction, 0)


def test_missing_labels_are_refused():
    with pytest.raises(ValueError, match="There are no labels"):
        fraction_of_rows([], 0.1, 0)
