"""Paired tests of encoders: values by hand, corrections, seeds, and how often they are wrong."""

import math

import numpy as np
import pytest
from scipy import stats

from declutr.evaluation.report.averages import Definition
from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.report.pairs import PairTest, Scored, contestants, corrected, pairs
from declutr.evaluation.report.truncated_encoders import WHOLE
from declutr.evaluation.results import Record
from declutr.evaluation.scores import Score
from declutr.evaluation.suite import TaskResult

NONE = (0.0, 0.0)


def results(*right: np.ndarray, gold: int = 1) -> dict[str, Record]:
    """Return results on tasks `a`, `b`, ... by which items were classified correctly."""
    found = {}
    for task, ones in zip("abc", right, strict=False):
        items = {"predicted": ones.astype(int), "gold": np.full(len(ones), gold)}
        score = Score("accuracy", "accuracy", items)
        found[task] = Record(TaskResult(task, "downstream", "accuracy", [score]), {})
    return found


def compared(**records: dict[str, Record]) -> Comparison:
    return Comparison(list(records), ["a", "b", "c"], records)


def drawn(n: int = 400, seed: int = 0, p: float = 0.5) -> np.ndarray:
    return np.random.default_rng(seed).random(n) < p


MEAN = Definition("mean", ({"a": "accuracy", "b": "accuracy"},))


def test_the_difference_of_two_encoders_has_the_error_of_its_items() -> None:
    x, y = drawn(seed=1, p=0.6), drawn(seed=2)
    found = pairs(compared(x=results(x), y=results(y)))
    (test,) = found.tasks
    assert (test.first, test.second, test.what) == ("x", "y", "a")
    d = 100 * (x.astype(float) - y)
    assert test.difference == pytest.approx(d.mean())
    error = d.std() / math.sqrt(len(d))
    assert test.p == pytest.approx(2 * stats.norm.sf(abs(d.mean()) / error), rel=0.25)
    assert test.interval == pytest.approx(
        (d.mean() - 1.96 * error, d.mean() + 1.96 * error), abs=0.8
    )
    assert test.holm == test.fdr == test.p and found.averages == []


def test_averages_draw_each_task_apart_from_the_others() -> None:
    same = drawn()  # the error of the mean of two tasks is smaller, even of equal items
    one = pairs(compared(x=results(same, same), y=results(~same, ~same)), [MEAN])
    (of_a, of_b), (average,) = one.tasks, one.averages
    assert average.difference == pytest.approx(of_a.difference)
    width = [test.interval.high - test.interval.low for test in (of_a, of_b, average)]
    assert width[2] == pytest.approx(width[0] / math.sqrt(2), rel=0.1)


def test_pairs_without_common_items_are_left_out() -> None:
    found = pairs(
        compared(x=results(drawn()), y=results(drawn(), drawn()), z=results(~drawn(), gold=0)),
        [MEAN],
    )
    assert [(test.first, test.second) for test in found.tasks] == [("x", "y")]
    assert found.tasks[0].p == 1 and found.averages == []
    assert pairs(compared(x=results(drawn()))).tasks == []
    without = Comparison(["x", "y"], ["a"], {"x": results(drawn()), "y": results(drawn())}, {}, 0)
    assert pairs(without).tasks == []


def test_corrections_by_hand() -> None:
    p = [0.04, 0.01, 0.03, 0.5]
    found = corrected([PairTest("x", "y", "", 0, NONE, each) for each in p])
    assert [test.holm for test in found] == pytest.approx([0.09, 0.04, 0.09, 0.5])
    assert [test.fdr for test in found] == pytest.approx([0.04 * 4 / 3, 0.04, 0.04 * 4 / 3, 0.5])
    assert [test.holds for test in found] == [False, True, False, False]


def test_seeds_make_one_contestant() -> None:
    facts = {"d@8": {"description": {WHOLE: "d"}}, "d@16": {"description": {WHOLE: "d"}}}
    names = ["a@1", "b", "a@seed2", "c@7", "d", "d@8", "d@16", "e", "e@1", "e@2"]
    found = contestants(Comparison(names, [], {}, facts))
    assert found.pop("a") == ["a@1", "a@seed2"]
    assert found == {name: [name] for name in names if name[0] != "a"}


def test_with_seeds_it_is_welchs_test_with_the_error_of_items() -> None:
    x, y = np.array([70.0, 72.0, 75.0]), np.array([69.0, 68.5, 70.0, 68.0])
    certain = np.zeros(1000)  # as if there were infinitely many items
    _, interval, p = Scored(x, certain).against(Scored(y, certain))
    expected = stats.ttest_ind(x, y, equal_var=False)
    assert p == pytest.approx(expected.pvalue)
    assert interval == pytest.approx(expected.confidence_interval())
    noise = 3 * np.random.default_rng(0).normal(size=1000)
    assert Scored(x, noise).against(Scored(y, certain))[2] > p
    assert Scored(x[:1], certain).against(Scored(y, certain))[0] == pytest.approx(70 - y.mean())


def test_false_findings_are_as_rare_as_the_level() -> None:
    """Two encoders of three seeds that do not differ, on items that do, 150 times."""
    rng, found = np.random.default_rng(1), []
    for _ in range(150):
        items, counts = rng.normal(size=200), rng.multinomial(200, np.full(200, 1 / 200), size=100)
        scored = []
        for _encoder in range(2):
            seeds = rng.normal(size=(3, 1)) / 5 + rng.normal(size=(3, 200)) / 2
            right = 100.0 * (items + rng.normal(size=200) + seeds > 0)
            scored.append(Scored(right.mean(axis=1), counts @ right.mean(axis=0) / 200))
        found.append(scored[0].against(scored[1])[2] < 0.05)
    assert np.mean(found) < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 150)
