"""Averages by hand and against printed rows of papers; none if a member is missing."""

import json
import math
from pathlib import Path

import pytest

from declutr.evaluation.report.averages import DEFINITIONS, V1_AVERAGE, Definition, averages

FIXTURE = Path(__file__).parents[2] / "fixtures" / "published_averages.json"
PUBLISHED = json.loads(FIXTURE.read_text())
ROUNDED = 0.0101  # half of the last digit of the printed average and of its members
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


def of_row(table: dict, encoder: str) -> dict[str, float]:
    """Compute all averages from a row of a paper's table.

    Each number of the row is the value of every score of its task that an average uses. A list of
    accuracy and F1 becomes their mean, `accuracy_and_f1`.
    """
    numbers = (sum(n) / len(n) if isinstance(n, list) else n for n in table["rows"][encoder])
    scores = {
        task: dict.fromkeys((members[task] for members in MEMBERS.values() if task in members), n)
        for task, n in zip(table["tasks"], numbers, strict=True)
    }
    return {average.name: average.value for average in averages(scores)}


# What a paper prints and its row does not give, under any name; and what the row gives.
WRONG_IN_PRINT = {("scd, table 2", "Avg. BERT embeddings"): 84.954}


@pytest.mark.parametrize("name", PUBLISHED["tables"])
def test_averages_equal_those_that_papers_print(name: str) -> None:
    table = PUBLISHED["tables"][name]
    assert set(table["rows"]) == set(table["printed"])
    for encoder, printed in table["printed"].items():
        got = of_row(table, encoder)
        for average, value in zip(table["averages"], printed, strict=True):
            if (name, encoder) in WRONG_IN_PRINT:
                known = [value for value in got.values() if value is not None]
                assert min(abs(one - value) for one in known) > ROUNDED
                assert got[average] == pytest.approx(WRONG_IN_PRINT[name, encoder], abs=0.001)
            else:
                assert got[average] == pytest.approx(value, abs=ROUNDED), (encoder, average)


@pytest.mark.parametrize(
    ("encoder", "printed", "alike"),
    [("DeCLUTR-base", 75.98, 76.60), ("USE", 72.91, 74.69), ("GloVe", 63.96, 64.40)],
)
def test_equal_weights_of_all_tasks_give_another_average_than_the_printed_one(
    encoder: str, printed: float, alike: float
) -> None:
    got = of_row(PUBLISHED["tables"]["declutr v1, table 1"], encoder)
    assert got[V1_AVERAGE] == pytest.approx(printed, abs=ROUNDED)
    assert got["DeCLUTR all with SNLI"] == pytest.approx(alike, abs=ROUNDED)


HALVES = PUBLISHED["halves of declutr v1 (downstream, probing, average; dev)"]


@pytest.mark.parametrize("table", HALVES)
def test_averages_equal_the_printed_mean_of_their_halves(table: str) -> None:
    """Tables S1 and S5 print no single tasks, so any scores with the printed averages will do."""
    downstream, probing = (
        MEMBERS[f"DeCLUTR {group}, dev"] for group in ("downstream with SNLI", "probing")
    )
    for *halves, printed in HALVES[table]:
        scores = {
            task: {score: value}
            for members, value in zip((downstream, probing), halves, strict=True)
            for task, score in members.items()
        }
        got = {average.name: average.value for average in averages(scores)}
        assert got[f"{V1_AVERAGE}, dev"] == pytest.approx(printed, abs=ROUNDED)


def test_mean_recalls_agree_with_the_sums_that_papers_print() -> None:
    """RECLAIM prints sums of six recalls; the sum for SCAN on Flickr30K does not fit its row."""
    mean = Definition("mean recall", (dict.fromkeys("abcdef", "recall"),))
    differences = []
    for *recalls, printed in PUBLISHED["sums of reclaim, table 3 (six recalls, sum)"]:
        scores = {task: {"recall": n} for task, n in zip("abcdef", recalls, strict=True)}
        differences.append(round(printed - 6 * mean.of(scores).value, 1))
    assert differences == [0, 0, 0.8, *[0] * 7]
