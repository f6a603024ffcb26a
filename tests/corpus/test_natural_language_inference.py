"""Oracles: triplets put together by hand, and in a naive way for random rows."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.corpus.documents import SourceError
from declutr.corpus.natural_language_inference import read_nli_pairs, read_nli_triplets
from declutr.corpus.pair_labels import NLI_CLASSES
from declutr.corpus.tables import Row
from declutr.corpus.text_pairs import Columns, TextPair


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
        with caplog.at_level(logging.INFO, logger="declutr.corpus.natural_language_inference"):
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
    def test_columns(self, names):
        given = Columns(None, *names[1:2], (), names[2]) if names[1] == "x" else Columns()
        assert len(read_nli_pairs(nli(*TABLE, names=names), given, "")) == 9

    @given(
        st.lists(
            st.tuples(
                st.sampled_from("pqr"), st.sampled_from("abcd"), st.sampled_from(NLI_CLASSES)
            ),
            min_size=1,
            max_size=30,
        )
    )
    def test_naively(self, table):
        expected = set()
        for premise in "pqr":
            for wanted in "abcd":
                if (premise, wanted, "entailment") in table and any(
                    (premise, other, "contradiction") in table for other in "abcd"
                ):
                    expected.add((premise, wanted))
        if not expected:
            with pytest.raises(SourceError, match="premises has both an entailment and a contrad"):
                read_nli_triplets(nli(*table), Columns(), "")
            return
        triplets = read_nli_triplets(nli(*table), Columns(), "")
        assert len(triplets) == len(expected)
        assert {(one.anchor, one.positive) for one in triplets} == expected
        for one in triplets:
            assert (one.anchor, one.negatives[0], "contradiction") in table

    def test_nothing(self):
        with pytest.raises(SourceError, match=r"a.tsv: none of 1 rows has a premise, a hyp"):
            read_nli_pairs(nli(("p", "h", "-")), Columns(), "a.tsv")
        with pytest.raises(SourceError, match=r"a.tsv: none of 1 premises has both"):
            read_nli_triplets(nli(("p", "h", 1)), Columns(), "a.tsv")
