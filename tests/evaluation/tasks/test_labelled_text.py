"""Labelled text: reading of lines and labels, and order and scores of a task."""

import numpy as np
import pytest

from declutr.evaluation.tasks.labelled_text import ClassificationTask, LabelledText, Part
from tests.evaluation.known_encoders import random, revealing, sentence
from tests.evaluation.tasks.data_files import QUICK


def part(start: int, count: int, kinds: int = 2) -> Part:
    rows = range(start, start + count)
    return Part(([sentence(row, row % kinds) for row in rows],), [row % kinds for row in rows])


def task(data: LabelledText, **settings) -> ClassificationTask:
    return ClassificationTask("T", "downstream", lambda: data, QUICK, **settings)


@pytest.mark.parametrize(
    "data",
    [
        LabelledText(3, part(0, 60, 3)),
        LabelledText(3, part(0, 60, 3), test=part(60, 30, 3)),
        LabelledText(3, part(0, 60, 3), part(90, 21, 3), part(60, 30, 3)),
    ],
    ids=["folds", "test", "split"],
)
def test_scores_of_encoders_with_known_answers(data: LabelledText) -> None:
    made = task(data)
    assert len(made.sentences()) == sum(len(some.labels) for some in data.parts)
    tested = data.test or data.train
    scores = {score.name: score for score in made.scores(revealing)}
    found = {name: score.value for name, score in scores.items()}
    assert found == {"accuracy": 100, "dev_accuracy": 100}
    assert len(scores["accuracy"].items["gold"]) == len(tested.labels)
    guessed = {score.name: score.value for score in made.scores(random)}
    assert 10 < guessed["accuracy"] < 60


def test_random_embeddings_score_at_chance() -> None:
    scores = task(LabelledText(2, part(0, 600), test=part(600, 1000))).scores(random)
    assert abs(scores[0].value - 50) < 5  # three standard deviations


def test_the_same_seed_gives_the_same_scores() -> None:
    data = LabelledText(2, part(0, 60))
    first, second = (task(data).scores(random) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        for name in one.items:
            np.testing.assert_array_equal(one.items[name], other.items[name])


def test_f1_and_its_mean_with_accuracy() -> None:
    data = LabelledText(2, part(0, 60), test=part(60, 40))
    scores = {score.name: score for score in task(data, f1=True).scores(random)}
    items = scores["f1"].items
    predicted, gold = items["predicted"], items["gold"]
    hits = np.sum(predicted * gold)
    precision, recall = hits / predicted.sum(), hits / gold.sum()
    f1 = 200 * precision * recall / (precision + recall)
    assert scores["f1"].value == pytest.approx(f1)
    assert scores["accuracy_and_f1"].value == pytest.approx((f1 + scores["accuracy"].value) / 2)


def test_items_are_sorted_by_words_then_label_then_position() -> None:
    columns = (["a b c", "d", "e f", "g", "h i"], ["1", "2 2", "3", "4", "5 5"])
    given = Part(columns, [0, 1, 1, 0, 1])
    by_first, by_both, by_second = (given.sorted(by) for by in ((0,), (0, 1), (1, 0)))
    assert by_first.columns[0] == ["g", "d", "e f", "h i", "a b c"]
    assert by_first.labels == [0, 1, 1, 1, 0]
    assert by_first.columns[1] == ["4", "2 2", "3", "5 5", "1"]
    assert by_both.columns[0] == ["g", "d", "e f", "h i", "a b c"]
    assert by_second.columns[0] == ["g", "e f", "a b c", "d", "h i"]


def test_a_blank_item_has_no_word_and_becomes_a_full_stop() -> None:
    columns = (["two words", "word", ".", "", " "], ["a", "b", "c", "d", "e e"])
    given = Part(columns, [1, 0, 1, 1, 0])
    first, second = given.sorted((0,)).columns
    assert first == [".", ".", "word", ".", "two words"] and second == ["e e", "d", "b", "c", "a"]
    assert given.sorted((1, 0)).columns[1] == ["d", "b", "c", "a", "e e"]


def test_the_score_is_computed_on_the_sorted_items() -> None:
    texts = ["three words kind0", "kind1", "two kind0", "kind0", "kind1 again"] * 6
    labels = [int("kind1" in text) for text in texts]
    assert task(LabelledText(2, Part((texts,), labels))).scores(revealing)[0].value == 100


def test_data_are_read_once_on_first_use() -> None:
    reads = []

    def read() -> LabelledText:
        reads.append(1)
        return LabelledText(2, part(0, 30), notes=["small"])

    made = ClassificationTask("T", "extra", read, QUICK)
    assert not reads
    made.sentences()
    assert made.notes() == ["small"]
    made.scores(revealing)
    assert len(reads) == 1
