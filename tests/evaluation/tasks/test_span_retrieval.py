"""Span retrieval against a naive loop, and on encoders with known answers."""

import numpy as np
import pytest

from declutr.evaluation.tasks.span_retrieval import (
    SpanPairs,
    adjacent_span_pairs,
    span_retrieval_accuracy,
)
from tests.conftest import make_documents

DOCUMENTS = make_documents(20, 150, seed=3)


VOCABULARY = sorted({word for document in DOCUMENTS for word in document.split()})


def bag_of_words(texts: list[str]) -> np.ndarray:
    return np.array([[text.split().count(word) for word in VOCABULARY] for text in texts])


def test_pairs_touch_and_share_no_text() -> None:
    numbered = [" ".join(f"d{d}w{w}" for w in range(150)) for d in range(5)]
    pairs = adjacent_span_pairs(numbered, min_words=8, max_words=32)
    assert len(pairs.queries) == 5
    for number, (query, target) in enumerate(zip(*pairs, strict=True)):
        places = [[int(word.split("w")[1]) for word in text.split()] for text in (query, target)]
        assert all(word.startswith(f"d{number}w") for word in query.split() + target.split())
        assert not set(places[0]) & set(places[1])
        assert places[0][-1] + 1 == places[1][0] or places[1][-1] + 1 == places[0][0]
        assert all(8 <= len(place) <= 32 for place in places)


def test_the_same_pairs_every_time_and_others_for_another_seed() -> None:
    assert adjacent_span_pairs(DOCUMENTS) == adjacent_span_pairs(DOCUMENTS)
    assert adjacent_span_pairs(DOCUMENTS) != adjacent_span_pairs(DOCUMENTS, seed=1)


def test_short_documents_are_left_out_and_too_few_are_refused() -> None:
    pairs = adjacent_span_pairs([*DOCUMENTS[:3], "too short"], max_words=64)
    assert len(pairs.queries) == 3
    with pytest.raises(ValueError, match=r"Only 1 of 2 documents have 128 words"):
        adjacent_span_pairs([DOCUMENTS[0], "too short"], max_words=64)


def test_accuracy_equals_a_naive_loop() -> None:
    rng = np.random.default_rng(0)
    pairs = SpanPairs([f"q{i}" for i in range(30)], [f"t{i}" for i in range(30)])
    queries = rng.normal(size=(30, 4))
    vectors = {"q": queries, "t": queries + rng.normal(size=(30, 4))}
    unit = {side: x / np.linalg.norm(x, axis=1, keepdims=True) for side, x in vectors.items()}
    share = np.mean([np.argmax([q @ t for t in unit["t"]]) == i for i, q in enumerate(unit["q"])])
    for block in (1, 7, 1024):
        found = span_retrieval_accuracy(lambda texts: vectors[texts[0][0]], pairs, block)
        assert found == share
    assert 0 < share < 1


def test_accuracy_of_encoders_with_known_answers() -> None:
    pairs = adjacent_span_pairs(DOCUMENTS)
    assert span_retrieval_accuracy(bag_of_words, pairs) > 0.8
    for same in (0.0, 1.0):
        assert span_retrieval_accuracy(lambda t, x=same: np.full((len(t), 3), x), pairs) == 1 / 20
