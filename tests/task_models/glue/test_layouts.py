"""Tests of the names of tasks, and of how a header is recognized."""

import pytest

from declutr.corpus.documents import SourceError
from declutr.corpus.tables import Row
from declutr.task_models.glue.layouts import LAYOUTS, own_layout, task_name


class TestTaskNames:
    @pytest.mark.parametrize(
        ("written", "task"),
        [
            ("cola", "cola"),
            ("CoLA", "cola"),
            ("SST2", "sst-2"),
            ("stsb", "sts-b"),
            ("Q_NLI", "qnli"),
        ],
    )
    def test_case_and_hyphens_are_ignored(self, written, task):
        assert task_name(written, list(LAYOUTS)) == task

    def test_an_unknown_task_is_refused(self):
        with pytest.raises(SourceError, match=r"No task 'mlni': .*Did you mean 'mnli'\?"):
            task_name("mlni", list(LAYOUTS))
        with pytest.raises(SourceError, match=r"name their columns\.$"):
            task_name("squad", list(LAYOUTS))


class TestHeaders:
    def test_a_header_is_recognized_by_the_names_of_texts(self):
        assert LAYOUTS["cola"].names_columns(["index", "sentence"])
        assert not LAYOUTS["cola"].names_columns(["gj04", "1", "", "A sentence."])
        assert LAYOUTS["qnli"].names_columns(["index", "question", "sentence"])
        assert not LAYOUTS["qnli"].names_columns(["index", "question"])

    @pytest.mark.parametrize(
        ("texts", "label", "header", "expected"),
        [(("a",), "b", None, True), ((0, 1), 2, None, False), ((0,), 2, True, True)],
    )
    def test_own_files_have_a_header_unless_columns_are_numbers(
        self, texts, label, header, expected
    ):
        assert own_layout(texts, label, False, header).names_columns(["x"]) is expected


class TestColumns:
    def test_a_number_counts_without_a_header_only(self):
        test_row = Row("line 2", {"index": "0", "sentence": "ka lo"})
        assert LAYOUTS["cola"].texts_of(test_row) == ("ka lo",)
        assert LAYOUTS["cola"].label_of(test_row) is None
        assert LAYOUTS["cola"].label_of(Row("line 1", {0: "gj04", 1: "1", 2: "", 3: "x"})) == "1"

    def test_a_missing_column_is_refused(self):
        with pytest.raises(
            SourceError, match=r"line 3: no column 'sentence1' or 'premise', found \['a', 'b'\]"
        ):
            LAYOUTS["rte"].texts_of(Row("line 3", {"a": "x", "b": "y"}))
        with pytest.raises(
            SourceError, match=r"found 2 column\(s\) without a header, counted from 0"
        ):
            LAYOUTS["cola"].texts_of(Row("line 1", {0: "x", 1: "y"}))
