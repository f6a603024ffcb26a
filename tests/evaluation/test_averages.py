"""Averages by hand; and none where a member is missing."""

import math

import pytest

from declutr.evaluation.averages import DEFINITIONS, averages

MEMBERS = {definition.name: definition.members for definition in DEFINITIONS}


def every_score(value: float) -> dict[str, dict[str, float]]:
    """All scores that any average needs."""
    scores: dict[str, dict[str, float]] = {}
    for members in MEMBERS.values():
        for task, score in members.items():
            scores.setdefault(task, {})[score] = value
    return scores


def test_names_and_sizes() -> None:
    assert {name: len(members) for name, members in MEMBERS.items()} == {
        "SimCSE STS": 7,
        "MTEB STS, 7 of its 10 tasks": 7,
        "STS12-16 mean Pearson": 5,
        "STS12-16 wmean Pearson": 5,
        "STS12-16 mean Spearman": 5,
        "STS12-16 wmean Spearman": 5,
        "SimCSE transfer": 7,
        "DeCLUTR downstream": 17,
        "DeCLUTR downstream with SNLI": 18,
        "DeCLUTR probing": 10,
        "DeCLUTR all": 27,
        "DeCLUTR all with SNLI": 28,
        "DeCLUTR downstream, dev": 17,
        "DeCLUTR downstream with SNLI, dev": 18,
        "DeCLUTR probing, dev": 10,
        "DeCLUTR all, dev": 27,
        "DeCLUTR all with SNLI, dev": 28,
    }


def test_seven_tasks_by_hand() -> None:
    # Unsupervised SimCSE-BERT-base in table 5 of its paper.
    published = [68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23]
    names = ["STS12", "STS13", "STS14", "STS15", "STS16", "STS-B", "SICK-R"]
    scores = {
        name: {"all Spearman": value, "cosine Spearman": value, "MTEB Spearman": value - 1}
        for name, value in zip(names, published, strict=True)
    }
    got = {average.name: average for average in averages(scores)}
    assert round(got["SimCSE STS"].value, 2) == 76.25
    assert got["MTEB STS, 7 of its 10 tasks"].value == pytest.approx(got["SimCSE STS"].value - 1)


def test_declutr_takes_other_scores_on_dev_than_on_test() -> None:
    test, dev = (
        MEMBERS["DeCLUTR downstream with SNLI"],
        MEMBERS["DeCLUTR downstream with SNLI, dev"],
    )
    assert set(test) == set(dev)
    assert {task: (test[task], dev[task]) for task in ("MRPC", "STS-B", "SICK-R", "STS14")} == {
        "MRPC": ("accuracy_and_f1", "dev_accuracy"),
        "STS-B": ("trained Spearman", "trained Pearson dev"),
        "SICK-R": ("trained Spearman", "trained Pearson dev"),
        "STS14": ("mean Spearman", "mean Spearman"),
    }
    assert (test["SNLI"], dev["SNLI"]) == ("accuracy", "dev_accuracy")
    assert set(test) - set(MEMBERS["DeCLUTR downstream"]) == {"SNLI"}


def test_tasks_weigh_the_same() -> None:
    scores = every_score(50)
    scores["SNLI"]["accuracy"] = 68
    scores["Length"]["accuracy"] = 60
    scores["MRPC"] |= {"accuracy_and_f1": 84, "accuracy": 80}
    got = {average.name: average.value for average in averages(scores)}
    assert got["DeCLUTR downstream"] == pytest.approx(50 + 34 / 17)
    assert got["DeCLUTR downstream with SNLI"] == pytest.approx(50 + (34 + 18) / 18)
    assert got["DeCLUTR probing"] == pytest.approx(51)
    assert got["DeCLUTR all"] == pytest.approx(50 + (34 + 10) / 27)
    assert got["DeCLUTR all with SNLI"] == pytest.approx(50 + (34 + 18 + 10) / 28)
    assert got["SimCSE transfer"] == pytest.approx(50 + 30 / 7)
    assert got["DeCLUTR all, dev"] == pytest.approx(50)


def test_a_missing_member_is_named_and_there_is_no_average() -> None:
    scores = every_score(50)
    del scores["STS13"]
    del scores["SICK-R"]["cosine Spearman"]
    scores["TREC"]["accuracy"] = math.nan
    got = {average.name: average for average in averages(scores)}
    assert got["SimCSE STS"].value is None
    assert got["SimCSE STS"].missing == ["STS13", "SICK-R"]
    assert got["MTEB STS, 7 of its 10 tasks"].missing == ["STS13"]
    assert got["SimCSE transfer"].missing == ["TREC"]
    assert got["DeCLUTR downstream"].missing == ["TREC", "STS13"]
    assert got["DeCLUTR probing"].missing == []
    assert got["DeCLUTR probing"].value == 50


def test_without_scores_every_average_is_missing() -> None:
    for average in averages({}):
        assert average.value is None
        assert average.missing == list(MEMBERS[average.name])
