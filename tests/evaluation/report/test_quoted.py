"""Quoted numbers: what papers print, whose averages follow from their rows."""

import math
from statistics import fmean

import pytest

from declutr.evaluation.report.averages import DEFINITIONS, V1_AVERAGE, averages
from declutr.evaluation.report.quoted import Quoted, UnknownQuotation, papers, quotations, quoted

ROUNDED = 0.0101  # half of the last digit of the printed average and of its members
MEMBERS = {definition.name: definition.members for definition in DEFINITIONS}
HALVES = ("DeCLUTR downstream with SNLI, dev", "DeCLUTR probing, dev")
MISPRINTS = {("scd:table2", "Avg. BERT embeddings"): 84.954}
# Averages without rows of tasks in the papers, development splits and ablations.
WITHOUT_ROWS = ("declutr_v1:tableS1", "declutr_v1:tableS5", "declutr_v1:tableS6", "scd:table3")
# Six recalls and their sum, RECLAIM, table 3; that of SCAN on Flickr30K does not fit its row.
RECALLS = """
55.6 81.9 89.5 39.1 69.2 80.9 416.2   55.5 82.0 89.3 41.1 70.5 80.1 418.5
67.7 88.9 94.0 44.0 74.2 82.6 452.2   68.2 89.3 94.7 47.4 75.2 82.9 457.7
69.5 91.2 95.5 48.6 77.1 84.2 466.1   41.2 70.5 81.1 25.3 53.4 66.4 337.9
42.8 72.3 83.0 33.1 62.9 75.5 369.6   46.4 77.4 87.2 34.4 63.7 75.7 384.8
47.1 79.6 88.1 35.5 64.2 76.9 391.4   49.7 81.0 89.8 37.9 66.7 78.2 403.3
"""


def row(label: str) -> Quoted:
    (found,) = [each for each in quotations() if each.label == label]
    return found


@pytest.mark.parametrize("each", quotations(), ids=lambda each: each.label)
def test_printed_averages_follow_from_their_rows(each: Quoted) -> None:
    known = papers()[each.table.partition(":")[0]]["tables"][each.table.partition(":")[2]]
    assert set(each.averages) <= set(MEMBERS)
    got = {average.name: average.value for average in averages(each.scores)}
    for name, printed in each.averages.items():
        if math.isnan(printed):
            assert each.encoder == "QuickThoughts"  # the paper prints no average for it
        elif (each.table, each.encoder) in MISPRINTS:
            assert got[name] == pytest.approx(MISPRINTS[each.table, each.encoder], abs=0.001)
            assert abs(got[name] - printed) > ROUNDED
            assert known["misprints"] == {each.encoder: MISPRINTS[each.table, each.encoder]}
        elif each.table in WITHOUT_ROWS:
            assert got[name] is None
        else:
            assert got[name] == pytest.approx(printed, abs=ROUNDED), name


@pytest.mark.parametrize("table", WITHOUT_ROWS[:2])
def test_averages_without_rows_are_the_means_of_their_halves(table: str) -> None:
    for each in quoted([table]):
        halves = [each.averages[name] for name in HALVES]
        assert each.averages[f"{V1_AVERAGE}, dev"] == pytest.approx(fmean(halves), abs=ROUNDED)


def test_ablations_equal_the_rows_they_repeat() -> None:
    for ablated, whole in (
        ("SCD, L_S + L_C", "SCD-BERT-base"),
        ("BERT-base", "BERT-base [CLS]-embedding"),
    ):
        one, other = row(f"{ablated} [scd:table3]"), row(f"{whole} [scd:table1]")
        assert one.scores["STS-B"] == other.scores["STS-B"]
        got = {average.name: average.value for average in averages(other.scores)}
        printed = one.averages["STS12-16 all Spearman"]
        assert got["STS12-16 all Spearman"] == pytest.approx(printed, abs=ROUNDED)


@pytest.mark.parametrize(
    ("encoder", "printed", "alike"),
    [("DeCLUTR-base", 75.98, 76.60), ("USE", 72.91, 74.69), ("GloVe", 63.96, 64.40)],
)
def test_equal_weights_give_another_average_than_the_printed_one(
    encoder: str, printed: float, alike: float
) -> None:
    each = row(f"{encoder} [declutr_v1:table1]")
    assert each.averages[V1_AVERAGE] == printed
    got = {average.name: average.value for average in averages(each.scores)}
    assert got["DeCLUTR all with SNLI"] == pytest.approx(alike, abs=ROUNDED)


def test_sums_of_recalls() -> None:
    numbers = list(map(float, RECALLS.split()))
    differences = [
        round(numbers[at + 6] - sum(numbers[at : at + 6]), 1) for at in range(0, len(numbers), 7)
    ]
    assert differences == [0, 0, 0.8, *[0] * 7]


def test_conventions_sources_and_sizes() -> None:
    scd, declutr = row("SCD-BERT-base [scd:table1]"), row("DeCLUTR-base [declutr_acl:table2]")
    assert scd.scores["STS12"] == {"all Spearman": 66.94}
    assert declutr.scores["STS12"] == {"mean Spearman": 63.56}
    assert declutr.scores["STS-B"] == {"trained Spearman": 79.39}
    assert declutr.scores["MRPC"]["accuracy_and_f1"] == pytest.approx((74.61 + 82.65) / 2)
    assert (declutr.parameters, declutr.dimension) == ("125M", 768)
    assert row("DeCLUTR-base [declutr_v1:table1]").averages["DeCLUTR probing"] == 73.80
    assert row("IS-BERT-base [scd:table1]").through == "Zhang et al. (2020)"
    assert scd.through is None and scd.source == "SCD, Klein and Nabi (2022), table 1"


def test_patterns_choose_tables_and_rows() -> None:
    assert len(quoted(["scd:table1"])) == 13
    assert [each.encoder for each in quoted(["SCD:table1/scd-*"])] == [
        "SCD-BERT-base",
        "SCD-RoBERTa-base",
    ]
    assert len(quoted(["declutr_acl:*", "declutr_acl:table3"])) == 10 + 9
    with pytest.raises(
        UnknownQuotation, match=r"called 'simcse:table5'. Expected one of declutr_v1:table1, "
    ):
        quoted(["simcse:table5"])
