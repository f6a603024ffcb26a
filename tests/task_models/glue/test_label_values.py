"""Tests of classes and scores as published, as on the Hugging Face hub, and invalid."""

import pytest

from declutr.corpus.documents import SourceError
from declutr.task_models.glue.layouts import Classes, Scores

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
        with pytest.raises(
            SourceError,
            match=rf"line 7: the label is {value!r}, expected one of entailment, neutral, contradi",
        ):
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

    @pytest.mark.parametrize("value", ["5.1", "nan", "high", True, [1]])
    def test_a_wrong_score_is_refused(self, value):
        with pytest.raises(
            SourceError, match=r"line 2: the label is .*, expected a number from 0 to 5\."
        ):
            Scores(0, 5).read(value, "line 2")

    @pytest.mark.parametrize("value", ["inf", "x"])
    def test_a_wrong_score_is_refused_without_a_range(self, value):
        with pytest.raises(
            SourceError, match=r"expected a number\. Is this a file of another task"
        ):
            Scores().read(value, "line 2")
