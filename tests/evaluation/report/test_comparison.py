"""Comparisons of encoders on scores that are known by hand."""

import math
import zlib

import numpy as np
import pytest

from declutr.evaluation.bootstrap import difference
from declutr.evaluation.report.comparison import Comparison
from declutr.evaluation.results import Record, record
from declutr.evaluation.scores import Score
from declutr.evaluation.suite import TaskResult


def accuracy(right: int, task: str = "MR", group: str = "downstream", items: int = 100) -> Record:
    predicted = (np.arange(items) < right).astype(int)
    score = Score("accuracy", "accuracy", {"predicted": predicted, "gold": np.ones(items, int)})
    return record(TaskResult(task, group, "accuracy", [score], notes=["a note"]), {})


def without(task: str, missing: bool = False, group: str = "downstream") -> Record:
    return Record(TaskResult(task, group, "accuracy", error="why", missing=missing), {})


def of(tasks: list[str], **records: list[Record]) -> Comparison:
    by_task = {name: {r.result.task: r for r in of_one} for name, of_one in records.items()}
    return Comparison(list(records), tasks, by_task)


def test_cells_have_value_and_half_width() -> None:
    found = of(["MR"], a=[accuracy(60)])
    cell = found.cell("a", "MR")
    assert cell.value == 60 and cell.interval.low < 60 < cell.interval.high
    # The normal approximation: 1.96 sqrt(p (1 - p) / n) = 9.6.
    assert cell.half_width == pytest.approx(9.6, abs=1)
    assert found.cell("a", "CR") is None and found.cell("a", "MR", "f1") is None


def test_the_best_is_determined_after_rounding() -> None:
    found = of(["MR", "CR"], a=[accuracy(60)], b=[accuracy(80)], c=[accuracy(80)])
    assert found.best("MR") == {"b", "c"}
    assert found.best("CR") == set()
    assert of(["MR"], a=[accuracy(60)]).best("MR") == set()  # there is no other encoder
    assert of(["MR"], a=[accuracy(60)], b=[accuracy(60)]).best("MR") == set()


def test_differences_are_from_the_first_encoder_on_the_same_items() -> None:
    found = of(
        ["MR", "CR"], a=[accuracy(60)], b=[accuracy(80)], c=[accuracy(61), accuracy(1, "CR")]
    )
    b = found.difference("b", "MR")
    assert b.value == pytest.approx(20) and b.certain and b.interval.low > 0
    scores = [found.record(name, "MR").main for name in "ba"]
    assert b.interval == difference(*scores, seed=zlib.crc32(b"MR"))
    c = found.difference("c", "MR")
    assert c.value == pytest.approx(1) and not c.certain
    assert found.difference("c", "CR") is None  # the first encoder has no score


@pytest.mark.parametrize(
    "items",
    [
        {"predicted": np.ones(4), "gold": np.arange(4), "subset": np.zeros(4)},  # fewer items
        {"predicted": np.ones(5), "gold": np.arange(5)[::-1], "subset": np.zeros(5)},
        {"predicted": np.ones(5), "gold": np.arange(5), "subset": np.arange(5) % 2},
        {"predicted": np.ones(5), "gold": np.arange(5)},
    ],
)
def test_no_difference_between_different_test_items(items) -> None:
    def one(items) -> Record:
        return record(TaskResult("x", "sts", "a", [Score("a", "accuracy", items)]), {})

    same = {"predicted": np.zeros(5), "gold": np.arange(5), "subset": np.zeros(5)}
    found = of(["x"], first=[one(same)], other=[one(items)], like=[one(same)])
    assert found.difference("other", "x") is None
    assert found.difference("like", "x") is not None


def test_missing_tasks_have_no_data_for_any_encoder() -> None:
    found = of(
        ["MR", "CR", "SUBJ"],
        a=[accuracy(1), without("CR", missing=True), without("SUBJ")],
        b=[accuracy(1), without("CR", missing=True), without("SUBJ", missing=True)],
    )
    assert found.missing() == {"CR": "why"}
    assert found.failures() == [("a", "SUBJ", "why")]
    assert found.groups() == {"downstream": ["MR"]}


def test_groups_are_in_the_order_of_the_report_without_maps() -> None:
    records = [accuracy(1, "x", "probing"), accuracy(1, "y"), accuracy(1, "z", "map")]
    assert list(of(["x", "y", "z"], a=records).groups()) == ["downstream", "probing"]


def test_values_leave_out_what_is_not_a_number() -> None:
    items = {"predicted": np.ones(5), "gold": np.arange(5.0)}
    scores = [Score("a", "spearman_all", items), Score("b", "mean", {"value": np.ones(2)})]
    found = of(["x"], e=[record(TaskResult("x", "sts", "a", scores), {})], f=[without("x")])
    assert found.values("e") == {"x": {"b": 100.0}} and found.values("f") == {}
    assert math.isnan(found.cell("e", "x").value) and found.cell("e", "x").half_width is None
    assert found.difference("f", "x") is None


def test_notes_name_their_encoders() -> None:
    found = of(["MR"], a=[accuracy(1)], b=[accuracy(1)])
    assert found.notes() == {"MR": {"a note": ["a", "b"]}}
