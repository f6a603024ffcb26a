"""Scores against scipy and by hand."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import f1_score

from declutr.evaluation.scores import STATISTICS, Score, pearson, spearman

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
    classes = {"predicted": np.array([0, 2, 2, 1]), "gold": np.array([0, 2, 0, 5])}
    of_labels = f1_score(classes["gold"], classes["predicted"], average="macro", zero_division=0)
    assert STATISTICS["macro_f1"](classes) == pytest.approx(100 * of_labels)
    assert STATISTICS["f1"]({"predicted": np.zeros(3), "gold": np.zeros(3)}) == 0
    values = {"value": np.array([0.5, 1.5, 0.25])}
    assert STATISTICS["mean"](values) == pytest.approx(75)
    assert STATISTICS["plain_mean"](values) == pytest.approx(0.75)
    assert STATISTICS["log_mean"](values) == pytest.approx(math.log(0.75))
    assert math.isnan(STATISTICS["log_mean"]({"value": np.array([-1.0, 0.5])}))


def test_errors_say_what_was_expected() -> None:
    values = {"value": np.ones(3)}
    with pytest.raises(ValueError, match=r"Unknown statistic 'median'; known: \['accuracy'"):
        Score("x", "median", values)
    with pytest.raises(ValueError, match=r"x: expected arrays of one length above 0, got .*'gold'"):
        Score("x", "accuracy", {"predicted": np.ones(3), "gold": np.ones(2)})
    with pytest.raises(ValueError, match="one length above 0"):
        Score("x", "mean", {"value": np.ones(0)})
