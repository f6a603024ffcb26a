"""Oracles: pairs put together by hand."""

import logging

import pytest

from declutr.corpus.documents import SourceError
from declutr.corpus.pair_labels import class_label
from declutr.corpus.tables import Row
from declutr.corpus.text_pairs import Columns, TextPair, read_pairs


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

    def test_numbers_with_a_header(self):
        row = rows({0: "x", 1: "y", "a": "x", "b": "y"})
        assert read_pairs(row, Columns(1, 0), "") == [TextPair("y", "x")]
        assert Columns(1, "a").numbered and Columns("b", "a", (0,)).numbered
        assert not Columns("b", "a", ("c",), "d").numbered

    def test_blank_texts_are_left_out_and_counted(self, caplog):
        table = rows(*({0: a, 1: b, 2: c} for a, b, c in ("xyz", " yz", "x z", "xy ")))
        with caplog.at_level(logging.WARNING, logger="declutr.corpus.text_pairs"):
            assert len(read_pairs(table, Columns(0, 1, (2,)), "pairs.tsv")) == 1
        assert "pairs.tsv: 3 row(s) are left out, as one of their texts is blank" in caplog.text
        assert "the first is line 2." in caplog.text

    def test_numbers_of_negatives_differ(self):
        table = rows(*({"anchor": "a", "positive": "b", "n": n} for n in (["c", "d"], ["e"])))
        with pytest.raises(
            SourceError, match=r"line 2 has 1 negative\(s\), expected 2 as in the rows before"
        ):
            read_pairs(table, Columns(negatives=("n",)), "")

    def test_nothing(self):
        with pytest.raises(SourceError, match=r"a.tsv: no row holds a pair of texts \(0 have"):
            read_pairs([], Columns(), "a.tsv")
        with pytest.raises(SourceError, match=r"no row holds a pair of texts \(1 have a blank"):
            read_pairs(rows({0: "", 1: "x"}), Columns(), "a.tsv")

    def test_missing_column(self):
        with pytest.raises(SourceError, match=r"line 1: no column 'anchor', found \['a', 'b'\]"):
            read_pairs(rows({"a": "x", "b": "y"}), Columns(), "")
