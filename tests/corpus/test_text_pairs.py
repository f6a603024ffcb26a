"""Tests of pairs of texts; the oracle is pairs made by hand."""

import logging
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.corpus.documents import SourceError
from declutr.corpus.tables import Row
from declutr.corpus.text_pairs import (
    NLI_CLASSES,
    Columns,
    TextPair,
    class_label,
    nli_class,
    read_nli_pairs,
    read_nli_triplets,
    read_pairs,
    score_label,
)


def rows(*values: dict) -> list[Row]:
    return [Row(f"line {number}", row) for number, row in enumerate(values, start=1)]


class TestPairs:
    def test_usual_columns(self):
        expected = [TextPair("x", "y")]
        assert read_pairs(rows({"anchor": " x", "positive": "y ", "z": ""}), Columns(), "")
        assert read_pairs(rows({"anchor": "x", "positive": "y"}), Columns(), "") == expected
        assert read_pairs(rows({0: "x", 1: "y", 2: "z"}), Columns(), "") == expected

    def test_given_columns(self):
        row = rows({"u": "x", "v": "y", "w": "z", "n": ["a", "b"], "l": "3"})
        columns = Columns("u", "v", ("w", "n"), "l")
        assert read_pairs(row, columns, "", class_label) == [TextPair("x", "y", ("z", "a", "b"), 3)]

    def test_columns_by_number_despite_a_header(self):
        row = rows({0: "x", 1: "y", "a": "x", "b": "y"})
        assert read_pairs(row, Columns(1, 0), "") == [TextPair("y", "x")]
        assert Columns(1, "a", (0,)).given == [1, "a", 0]

    def test_blank_texts_are_left_out_and_counted(self, caplog):
        table = rows(*({0: a, 1: b, 2: c} for a, b, c in ("xyz", " yz", "x z", "xy ")))
        with caplog.at_level(logging.WARNING, logger="declutr.corpus.text_pairs"):
            assert len(read_pairs(table, Columns(0, 1, (2,)), "pairs.tsv")) == 1
        assert "pairs.tsv: 3 row(s) are left out, as one of their texts is blank" in caplog.text
        assert "the first is line 2." in caplog.text

    def test_different_numbers_of_negatives_are_refused(self):
        table = rows(*({"anchor": "a", "positive": "b", "n": n} for n in (["c", "d"], ["e"])))
        said = r"line 2 has 1 negative\(s\), expected 2 as in the rows before"
        with pytest.raises(SourceError, match=said):
            read_pairs(table, Columns(negatives=("n",)), "")

    def test_a_table_without_pairs_is_refused(self):
        with pytest.raises(SourceError, match=r"a.tsv: no row holds a pair of texts \(0 have"):
            read_pairs([], Columns(), "a.tsv")
        with pytest.raises(SourceError, match=r"no row holds a pair of texts \(1 have a blank"):
            read_pairs(rows({0: "", 1: "x"}), Columns(), "a.tsv")

    def test_a_missing_column_is_refused(self):
        with pytest.raises(SourceError, match=r"line 1: no column 'anchor', found \['a', 'b'\]"):
            read_pairs(rows({"a": "x", "b": "y"}), Columns(), "")


def test_class_label_reads_numbers():
    assert [class_label(value, "") for value in ("2", 2, " 0 ")] == [2, 2, 0]


def test_score_label_divides_by_the_highest_score():
    label_of = pickle.loads(pickle.dumps(score_label(5)))  # A spawned worker gets a pickle.
    assert [label_of(value, "") for value in ("5", 2.5, 0, "-1")] == [1, 0.5, 0, -0.2]


def test_nli_class_reads_names_and_numbers():
    assert [nli_class(name, "") for name in NLI_CLASSES] == [0, 1, 2]
    assert [nli_class(value, "") for value in ("Contradiction ", 1, "0")] == [2, 1, 0]
    assert [nli_class(value, "") for value in ("-", -1, "-1", "", None)] == [None] * 5


@pytest.mark.parametrize(
    ("label_of", "expected", "values"),
    [
        (class_label, "a class, 0 or ", ["1.5", "", None, "entailment", -1, "-1", True, 1.0]),
        (
            score_label(5),
            "a score of at most 5. Set max_s",
            ["5.1", -6, "nan", "inf", "", None, "high", True, [1]],
        ),
        (nli_class, "entailment, neutral, contradict", ["entails", 3, 1.0, True]),
    ],
    ids=["class", "score", "nli"],
)
def test_other_values_are_refused_as_labels(label_of, expected, values):
    for value in values:
        with pytest.raises(SourceError, match=f"line 7: the label is .*, expected {expected}"):
            label_of(value, "line 7")


def nli(*triples: tuple, names=("premise", "hypothesis", "label")) -> list[Row]:
    return [
        Row(f"line {number}", dict(zip(names, triple, strict=True)))
        for number, triple in enumerate(triples, start=1)
    ]


TABLE = (
    ("p", "e1", "entailment"),
    ("p", "n", "neutral"),
    ("q", "c2", "contradiction"),
    ("p", "c1", "contradiction"),
    ("p", "e2", "entailment"),
    ("p", "e2", "entailment"),
    ("p", "e3", "entailment"),
    ("p", "c3", "contradiction"),
    ("r", "e4", "entailment"),
    ("r", "c4", "-"),
)


class TestInference:
    def test_triplets_by_premise(self, caplog):
        with caplog.at_level(logging.INFO, logger="declutr.corpus.text_pairs"):
            assert read_nli_triplets(nli(*TABLE), Columns(), "a.tsv") == [
                TextPair("p", "e1", ("c1",)),
                TextPair("p", "e2", ("c3",)),
                TextPair("p", "e3", ("c1",)),
            ]
        assert "a.tsv: 10 rows; 1 left out, without a class or with a blank text" in caplog.text
        assert "3 triplets of 1 premises; 2 premises lack an entailment or a con" in caplog.text

    def test_pairs_with_classes(self):
        pairs = read_nli_pairs(nli(*TABLE), Columns(), "a.tsv")
        assert pairs == [
            TextPair(premise, hypothesis, label=NLI_CLASSES.index(label))
            for premise, hypothesis, label in TABLE[:-1]
        ]

    @pytest.mark.parametrize(
        "names", [("sentence1", "sentence2", "gold_label"), (0, 1, 2), ("premise", "x", "y")]
    )
    def test_usual_and_given_columns(self, names):
        given = Columns(None, *names[1:2], (), names[2]) if names[1] == "x" else Columns()
        assert len(read_nli_pairs(nli(*TABLE, names=names), given, "")) == 9

    @given(st.lists(st.tuples(*map(st.sampled_from, ["pqr", "abcd", NLI_CLASSES])), min_size=1))
    def test_triplets_equal_a_naive_search(self, table):
        expected = {
            (premise, wanted)
            for premise, wanted, label in table
            if label == "entailment"
            and any((premise, other, "contradiction") in table for other in "abcd")
        }
        if not expected:
            with pytest.raises(SourceError, match="premises has both an entailment and a contrad"):
                read_nli_triplets(nli(*table), Columns(), "")
            return
        triplets = read_nli_triplets(nli(*table), Columns(), "")
        assert len(triplets) == len(expected)
        assert {(one.anchor, one.positive) for one in triplets} == expected
        for one in triplets:
            assert (one.anchor, one.negatives[0], "contradiction") in table

    def test_rows_without_classes_or_triplets_are_refused(self):
        with pytest.raises(SourceError, match=r"a.tsv: none of 1 rows has a premise, a hyp"):
            read_nli_pairs(nli(("p", "h", "-")), Columns(), "a.tsv")
        with pytest.raises(SourceError, match=r"a.tsv: none of 1 premises has both"):
            read_nli_triplets(nli(("p", "h", 1)), Columns(), "a.tsv")
