"""Tests of the names of tasks, of headers, and of classes and scores as published and invalid."""

import pytest

from declutr.corpus.documents import SourceError
from declutr.corpus.tables import Row
from declutr.task_models.glue.layouts import LAYOUTS, Classes, Scores
from declutr.task_models.glue.tasks import own_layout, task_name


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
        said = r"line 3: no column 'sentence1' or 'premise', found \['a', 'b'\]"
        with pytest.raises(SourceError, match=said):
            LAYOUTS["rte"].texts_of(Row("line 3", {"a": "x", "b": "y"}))
        said = r"found 2 column\(s\) without a header, counted from 0"
        with pytest.raises(SourceError, match=said):
            LAYOUTS["cola"].texts_of(Row("line 1", {0: "x", 1: "y"}))


NLI = Classes(("entailment", "neutral", "contradiction"))


class TestClasses:
    @pytest.mark.parametrize("value", ["contradiction", "CONTRADICTION", " contradiction ", "2", 2])
    def test_classes_are_read_by_name_or_number(self, value):
        assert NLI.read(value, "line 1") == "contradiction"

    @pytest.mark.parametrize("value", [None, "", "-", "-1", -1])
    def test_no_label_is_read_as_none(self, value):
        assert NLI.read(value, "line 1") is None

    @pytest.mark.parametrize("value", ["entailed", "3", 3, True])
    def test_an_unknown_class_is_refused(self, value):
        said = f"line 7: the label is {value!r}, expected one of entailment, neutral, contradi"
        with pytest.raises(SourceError, match=said):
            NLI.read(value, "line 7")

    def test_any_class_is_read_without_names(self):
        own = Classes(unlabelled=("",))
        assert own.read("Sports", "") == "Sports" and own.read(-1, "") == "-1"
        assert own.read(" ", "") is None

    @pytest.mark.parametrize("value", [1.5, ["a"]])
    def test_values_of_other_types_are_not_classes(self, value):
        with pytest.raises(SourceError, match=r"expected a class: a string or an int\. Set labels"):
            Classes().read(value, "line 1")


class TestScores:
    def test_scores_are_read(self):
        assert Scores(0, 5).read("3.800", "") == 3.8
        assert Scores().read(-7, "") == -7.0 and isinstance(Scores().read(-7, ""), float)
        assert Scores(unlabelled=("",)).read("-1", "") == -1.0

    @pytest.mark.parametrize("value", [None, "", "-1", -1.0])
    def test_no_score_is_read_as_none(self, value):
        assert Scores(0, 5).read(value, "") is None

    @pytest.mark.parametrize(
        ("scores", "values", "expected"),
        [
            (Scores(0, 5), ["5.1", "nan", "high", True, [1]], r"a number from 0 to 5\."),
            (Scores(), ["inf", "x"], r"a number\. Is this a file of another task"),
        ],
    )
    def test_a_wrong_score_is_refused(self, scores, values, expected):
        for value in values:
            with pytest.raises(SourceError, match=rf"line 2: the label is .*, expected {expected}"):
                scores.read(value, "line 2")
