"""Scores against scipy and by hand; intervals against known sampling distributions."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from declutr.evaluation.scores import (
    STATISTICS,
    Interval,
    Score,
    difference,
    interval,
    pearson,
    spearman,
)

FEW_VALUES = st.integers(-3, 3).map(float)  # so that there are ties
ANY_VALUES = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6)
ARRAYS = st.integers(3, 40).flatmap(
    lambda n: st.tuples(
        *[st.lists(values, min_size=n, max_size=n) for values in (FEW_VALUES, ANY_VALUES)]
    )
)


@given(ARRAYS)
def test_correlations_equal_those_of_scipy(arrays: tuple[list[float], list[float]]) -> None:
    x, y = (np.array(array) for array in arrays)
    # For nearly constant arrays, no implementation has correct digits left.
    assume(np.ptp(x) > 0 and np.ptp(y) > 1e-6 * max(1, np.abs(y).max()))
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-9)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-9)


@given(st.floats(-1e3, 1e3), st.integers(2, 30))
def test_a_constant_array_has_no_correlation(value: float, count: int) -> None:
    other = np.arange(count, dtype=np.float64)
    for measure in (pearson, spearman):
        assert math.isnan(measure(np.full(count, value), other))
        assert math.isnan(measure(other, np.full(count, value)))


def test_tiny_and_whole_numbers_correlate_too() -> None:
    x, y = np.array([1.0, 2, 3, 5]), np.array([2.0, 1, 4, 4])
    assert pearson(x * 1e-200, y) == pytest.approx(pearson(x, y))
    assert pearson(x.astype(np.int64), y.astype(np.int64)) == pytest.approx(pearson(x, y))
    assert spearman((x * 10**12).astype(np.int64), y) == pytest.approx(spearman(x, y))


def scored(rng: np.random.Generator, sizes: list[int]) -> dict[str, np.ndarray]:
    gold = rng.normal(size=sum(sizes))
    predicted = gold + rng.normal(size=len(gold))
    return {
        "predicted": predicted,
        "gold": gold.round(1),
        "subset": np.repeat(np.arange(len(sizes)), sizes),
    }


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_correlations_of_subsets_are_averaged(name: str) -> None:
    sizes = [10, 30, 5]
    items = scored(np.random.default_rng(0), sizes)
    oracle = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[name]
    parts = [items["subset"] == k for k in range(3)]
    each = [100 * oracle(items["predicted"][part], items["gold"][part])[0] for part in parts]
    values = {over: STATISTICS[f"{name}_{over}"](items) for over in ("all", "mean", "wmean")}
    assert values["all"] == pytest.approx(100 * oracle(items["predicted"], items["gold"])[0])
    assert values["mean"] == pytest.approx(sum(each) / 3)
    assert values["wmean"] == pytest.approx((10 * each[0] + 30 * each[1] + 5 * each[2]) / 45)
    assert len({round(value, 6) for value in values.values()}) == 3


def test_statistics_of_classes_and_values_by_hand() -> None:
    items = {"predicted": np.array([1, 1, 0, 0, 1]), "gold": np.array([1, 0, 0, 1, 1])}
    assert STATISTICS["accuracy"](items) == pytest.approx(60)
    # Of 3 predicted and 3 true positives 2 agree: precision and recall are both 2/3.
    assert STATISTICS["f1"](items) == pytest.approx(200 / 3)
    assert STATISTICS["accuracy_and_f1"](items) == pytest.approx((60 + 200 / 3) / 2)
    assert STATISTICS["f1"]({"predicted": np.zeros(3), "gold": np.zeros(3)}) == 0
    values = {"value": np.array([0.5, 1.5, 0.25])}
    assert STATISTICS["mean"](values) == pytest.approx(75)
    assert STATISTICS["plain_mean"](values) == pytest.approx(0.75)
    assert STATISTICS["log_mean"](values) == pytest.approx(math.log(0.75))
    assert math.isnan(STATISTICS["log_mean"]({"value": np.array([-1.0, 0.5])}))


def test_the_interval_of_a_mean_equals_the_normal_approximation() -> None:
    values = np.random.default_rng(1).normal(3, 2, size=400)
    low, high = interval(Score("x", "plain_mean", {"value": values}))
    error = values.std() / math.sqrt(400)
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)


@pytest.mark.slow
def test_intervals_cover_the_true_value_as_often_as_they_claim() -> None:
    truth, covered = 100 * 0.6, 0
    for seed in range(200):
        x = np.random.default_rng(seed).multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=80)
        score = Score("x", "pearson_all", {"predicted": x[:, 0], "gold": x[:, 1]})
        low, high = interval(score, confidence=0.9, resamples=200, seed=seed)
        covered += low <= truth <= high
    assert 0.82 <= covered / 200 <= 0.96


@pytest.mark.slow
def test_intervals_are_wider_for_more_confidence_and_reproducible() -> None:
    score = Score("x", "spearman_wmean", scored(np.random.default_rng(2), [40, 20]))
    narrow, wide = interval(score, confidence=0.5), interval(score, confidence=0.99)
    assert wide.low < narrow.low < score.value < narrow.high < wide.high
    assert interval(score) == interval(score)
    assert interval(score) != interval(score, seed=1)


@pytest.mark.parametrize("over", ["all", "mean", "wmean"])
def test_integers_in_place_of_values_do_not_change_rank_correlations(over: str) -> None:
    """Intervals are computed on integer codes; a plain loop over the values gives the same."""
    items = scored(np.random.default_rng(3), [25, 15])
    rng = np.random.default_rng(0)
    values = []
    for _ in range(50):
        rows = np.concatenate([rng.integers(25, size=25), 25 + rng.integers(15, size=15)])
        values.append(STATISTICS[f"spearman_{over}"]({k: v[rows] for k, v in items.items()}))
    expected = np.percentile(values, [2.5, 97.5])
    assert interval(Score("x", f"spearman_{over}", items), resamples=50) == pytest.approx(expected)


def test_items_are_drawn_within_their_subset() -> None:
    items = {"value": np.repeat([0.0, 1.0], [30, 70]), "subset": np.repeat([0, 1], [30, 70])}
    assert interval(Score("x", "mean", items)) == Interval(pytest.approx(70), pytest.approx(70))
    apart = interval(Score("x", "mean", {"value": items["value"]}))
    assert apart.low < 65 and apart.high > 75


def test_a_difference_is_paired() -> None:
    """Encoders that differ by a constant differ with certainty, however noisy each of them is."""
    values = np.random.default_rng(4).normal(size=50)
    first = Score("x", "plain_mean", {"value": values + 0.1})
    second = Score("x", "plain_mean", {"value": values})
    assert difference(first, second) == pytest.approx((0.1, 0.1))
    assert interval(first).high - interval(first).low > 0.3
    assert difference(first, first) == (0, 0)
    low, high = difference(second, first)
    assert (low, high) == pytest.approx((-0.1, -0.1))


def test_the_interval_of_no_difference_mostly_contains_zero() -> None:
    rng, covered = np.random.default_rng(5), 0
    for trial in range(200):
        shared = rng.normal(size=60)
        ours, theirs = (
            Score("x", "plain_mean", {"value": shared + rng.normal(size=60)}) for _ in range(2)
        )
        low, high = difference(ours, theirs, resamples=200, seed=trial)
        covered += low <= 0 <= high
    assert 0.89 <= covered / 200 <= 0.99


def test_a_score_without_a_defined_value_has_no_interval() -> None:
    score = Score("x", "pearson_all", {"predicted": np.ones(5), "gold": np.arange(5.0)})
    assert math.isnan(score.value)
    assert all(math.isnan(end) for end in interval(score))
    assert all(math.isnan(end) for end in difference(score, score))


def test_resamples_without_a_value_are_left_out() -> None:
    # Half of all samples of two items contain one of them twice, and have no correlation.
    score = Score("x", "pearson_all", {"predicted": np.arange(2.0), "gold": np.arange(2.0)})
    assert interval(score) == pytest.approx((100, 100))


def test_errors_say_what_was_expected() -> None:
    values = {"value": np.ones(3)}
    with pytest.raises(ValueError, match=r"Unknown statistic 'median'; known: \['accuracy'"):
        Score("x", "median", values)
    with pytest.raises(ValueError, match=r"x: expected arrays of one length above 0, got .*'gold'"):
        Score("x", "accuracy", {"predicted": np.ones(3), "gold": np.ones(2)})
    with pytest.raises(ValueError, match="one length above 0"):
        Score("x", "mean", {"value": np.ones(0)})
    with pytest.raises(ValueError, match=r"got 'x' of 3 and 'y' of 3 items"):
        difference(Score("x", "mean", values), Score("y", "mean", values))
    with pytest.raises(ValueError, match=r"got 'x' of 3 and 'x' of 4 items"):
        difference(Score("x", "mean", values), Score("x", "mean", {"value": np.ones(4)}))
