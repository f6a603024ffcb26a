"""Labels as files write them, and what is none."""

import pickle

import pytest

from declutr.corpus.documents import SourceError
from declutr.corpus.pair_labels import NLI_CLASSES, class_label, nli_class, score_label


def test_classes():
    assert [class_label(value, "") for value in ("2", 2, " 0 ")] == [2, 2, 0]


@pytest.mark.parametrize("value", ["1.5", "", None, "entailment", -1, "-1", True, 1.0])
def test_no_class(value):
    with pytest.raises(SourceError, match=r"line 7: the label is .*, expected a class, 0 or "):
        class_label(value, "line 7")


def test_scores():
    label_of = pickle.loads(pickle.dumps(score_label(5)))  # as to a worker that is spawned
    assert [label_of(value, "") for value in ("5", 2.5, 0, "-1")] == [1, 0.5, 0, -0.2]


@pytest.mark.parametrize("value", ["5.1", -6, "nan", "inf", "", None, "high", True, [1]])
def test_no_score(value):
    with pytest.raises(
        SourceError, match=r"line 7: the label is .*, expected a score of at most 5. Set max_s"
    ):
        score_label(5)(value, "line 7")


def test_classes_of_inference():
    assert [nli_class(name, "") for name in NLI_CLASSES] == [0, 1, 2]
    assert [nli_class(value, "") for value in ("Contradiction ", 1, "0")] == [2, 1, 0]
    assert [nli_class(value, "") for value in ("-", -1, "-1", "", None)] == [None] * 5


@pytest.mark.parametrize("value", ["entails", 3, 1.0, True])
def test_no_class_of_inference(value):
    with pytest.raises(
        SourceError, match=r"line 7: the label is .*, expected entailment, neutral, contradict"
    ):
        nli_class(value, "line 7")
