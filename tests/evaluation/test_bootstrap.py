"""Intervals against plain loops over samples, and against known sampling distributions."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.evaluation import bootstrap
from declutr.evaluation.bootstrap import Interval, difference, interval, resampled
from declutr.evaluation.scores import STATISTICS, Items, Score
from tests.evaluation.test_scores import scored


def drawn_in_a_loop(score: Score, resamples: int, seed: int) -> list[float]:
    """Values of a score on samples that are drawn subset by subset, one after the other."""
    items = score.items
    subsets = items.get("subset", np.zeros(score.count, dtype=int))
    parts = {k: np.flatnonzero(subsets == k) for k in np.unique(subsets)}
    draws = {
        k: np.random.default_rng([seed, 2 * k]).integers(len(rows), size=(resamples, len(rows)))
        for k, rows in parts.items()
    }
    values = []
    for sample in range(resamples):
        rows = np.concatenate([parts[k][draws[k][sample]] for k in parts])
        taken = {name: array[rows] for name, array in items.items()}
        values.append(STATISTICS[score.statistic](taken))
    return values


def cases() -> list[Score]:
    rng = np.random.default_rng(0)
    subsets = scored(rng, [25, 15, 40])
    alone = {name: array[25:40] for name, array in subsets.items()}
    tied = subsets | {"predicted": subsets["predicted"].round(), "gold": subsets["gold"].round()}
    classes = {name: rng.integers(0, 2, size=30) for name in ("predicted", "gold")}
    many = {name: rng.integers(0, 9, size=12) for name in ("predicted", "gold")}
    values = {"value": rng.normal(1, 1, size=50), "subset": np.repeat([0, 1], 25)}
    negative = {"value": rng.normal(0, 1, size=5)}
    of_items: list[tuple[Items, str]] = [
        *((items, "spearman_") for items in (subsets, alone, tied)),
        *((items, "pearson_") for items in (subsets, alone, tied)),
        *[(classes, "accuracy"), (classes, "f1"), (values, "deviation")],
        (many, "macro_f1"),
        *(
            (
                subsets | {"gold": subsets[name] > 4, "predicted": subsets["gold"].round(by)},
                "average_precision",
            )
            for name, by in (("predicted", 0), ("gold", 3))
        ),
        *[(values, "mean"), (values, "plain_mean"), (values, "log_mean"), (negative, "log_mean")],
    ]
    return [
        Score(f"{number} {name}", name, items)
        for number, (items, start) in enumerate(of_items)
        for name in STATISTICS
        if name.startswith(start)
    ]


@pytest.mark.parametrize("at_once", [1, 1000, 10**6])
def test_values_equal_those_of_a_loop(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_COUNTS_AT_ONCE", at_once)
    scores = cases()
    assert {score.statistic for score in scores} == set(STATISTICS)
    together = resampled(scores, resamples=40, seed=3)
    for score, values in zip(scores, together, strict=True):
        expected = drawn_in_a_loop(score, 40, seed=3)
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9, err_msg=score.name)
        np.testing.assert_array_equal(values, resampled([score], 40, seed=3)[0])


def test_memory_does_not_grow_with_the_number_of_classes() -> None:
    items = {"predicted": np.arange(3000), "gold": np.arange(3000)[::-1].copy()}
    tracemalloc.start()
    try:
        resampled([Score("F1", "macro_f1", items)], resamples=4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10e6  # a table of items and classes has 72 MB


@given(
    st.lists(st.tuples(st.integers(-2, 2), st.floats(-1, 1)), min_size=2, max_size=12),
    st.sampled_from([1.0, 1e-12, 1e12]),
)
def test_few_items_with_many_ties(pairs: list[tuple[int, float]], scale: float) -> None:
    """Samples that are constant have no value, and nearly constant ones keep their digits."""
    predicted, gold = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    items = {"predicted": predicted * scale + 1, "gold": gold.round(3)}
    for name in ("pearson_all", "spearman_all"):
        score = Score(name, name, items)
        expected = drawn_in_a_loop(score, 20, seed=0)
        np.testing.assert_allclose(resampled([score], 20)[0], expected, rtol=0, atol=1e-4)


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


def test_wrong_arguments_are_told() -> None:
    values = {"value": np.ones(3)}
    with pytest.raises(ValueError, match="at least one bootstrap sample, got 0"):
        interval(Score("x", "mean", values), resamples=0)
    with pytest.raises(ValueError, match=r"got 'x' of 3 and 'y' of 3 items"):
        difference(Score("x", "mean", values), Score("y", "mean", values))
    with pytest.raises(ValueError, match=r"got 'x' of 3 and 'x' of 4 items"):
        difference(Score("x", "mean", values), Score("x", "mean", {"value": np.ones(4)}))
