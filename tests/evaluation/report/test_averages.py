"""Averages by hand; none if a member is missing."""

import math

import pytest

from declutr.evaluation.report.averages import DEFINITIONS, V1_AVERAGE, averages

MEMBERS = {definition.name: definition.members for definition in DEFINITIONS}


def every_score(value: float) -> dict[str, dict[str, float]]:
    """Return all scores that any average needs, with the same value."""
    scores: dict[str, dict[str, float]] = {}
    for members in MEMBERS.values():
        for task, score in members.items():
            scores.setdefault(task, {})[score] = value
    return scores


def test_averages_have_the_expected_names_and_sizes() -> None:
    groups = {"downstream": 17, "downstream with SNLI": 18, "probing": 10, "all": 27}
    of_declutr = {f"DeCLUTR {group}": size for group, size in groups.items()}
    of_declutr |= {"DeCLUTR all with SNLI": 28, V1_AVERAGE: 28}
    sts = [f"{how} {kind}" for kind in ("Pearson", "Spearman") for how in ("mean", "wmean")]
    expected = {"SimCSE STS": 7, "MTEB STS, 7 of its 10 tasks": 7, "SimCSE transfer": 7}
    expected |= {f"STS12-16 {name}": 5 for name in (*sts, "all Spearman")}
    expected |= of_declutr | {f"{name}, dev": size for name, size in of_declutr.items()}
    assert {name: len(members) for name, members in MEMBERS.items()} == expected


def test_averages_of_seven_tasks_by_hand() -> None:
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
    name = "DeCLUTR downstream with SNLI"
    test, dev = MEMBERS[name], MEMBERS[f"{name}, dev"]
    assert set(test) == set(dev)
    trained = ("trained Spearman", "trained Pearson dev")
    for task, scores in {
        "MRPC": ("accuracy_and_f1", "dev_accuracy"),
        "STS-B": trained,
        "SICK-R": trained,
        "STS14": ("mean Spearman", "mean Spearman"),
        "SNLI": ("accuracy", "dev_accuracy"),
    }.items():
        assert (test[task], dev[task]) == scores
    assert set(test) - set(MEMBERS["DeCLUTR downstream"]) == {"SNLI"}


def test_tasks_have_equal_weight() -> None:
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
    assert got[V1_AVERAGE] == pytest.approx(50 + (34 + 18) / 18 / 2 + 10 / 10 / 2)
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
    assert got[V1_AVERAGE].missing == ["TREC", "STS13"]
    assert got["DeCLUTR probing"].missing == []
    assert got["DeCLUTR probing"].value == 50


def test_without_scores_every_average_is_missing() -> None:
    for average in averages({}):
        assert average.value is None
        assert average.missing == list(MEMBERS[average.name])
