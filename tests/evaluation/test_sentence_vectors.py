"""Sentence embeddings: each distinct sentence is embedded once, and bad outputs are reported."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.evaluation.sentence_vectors import SentenceVectors
from declutr.evaluation.task import BadEmbeddings


def lengths(texts: list[str]) -> np.ndarray:
    """Return embeddings that identify their sentence."""
    return np.array([[len(text), sum(map(ord, text)), hash(text) % 1000] for text in texts], float)


class Counting:
    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.calls.append(list(texts))
        return lengths(texts)


@given(st.lists(st.lists(st.text("ab", max_size=4), max_size=12), max_size=5), st.integers(1, 7))
def test_every_different_sentence_is_embedded_once(groups: list[list[str]], block: int) -> None:
    encode = Counting()
    vectors = SentenceVectors(encode, block=block)
    for group in groups:
        vectors.add(group)
    sent = [text for call in encode.calls for text in call]
    assert len(sent) == len(set(sent)) == vectors.embedded
    assert set(sent) == {text for group in groups for text in group}
    assert all(0 < len(call) <= block for call in encode.calls)
    for group in groups:
        if group:
            np.testing.assert_array_equal(vectors(group), lengths(group).astype(np.float32))


def test_a_request_keeps_its_order_and_repetitions() -> None:
    vectors = SentenceVectors(lengths, block=2)
    vectors.add(["a", "bb", "ccc"])
    got = vectors(["ccc", "a", "ccc"])
    assert got.dtype == np.float32
    assert got[:, 0].tolist() == [3, 1, 3]
    assert vectors.dimension == 3


def test_the_longest_sentences_are_embedded_first() -> None:
    encode = Counting()
    SentenceVectors(encode, block=2).add(["a", "bbb", "cc", "dddd"])
    assert encode.calls == [["dddd", "bbb"], ["cc", "a"]]


def test_without_sentences_nothing_is_embedded() -> None:
    encode = Counting()
    vectors = SentenceVectors(encode)
    vectors.add([])
    assert (encode.calls, vectors.embedded, vectors.dimension) == ([], 0, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_raise_when_they_are_requested(bad: float) -> None:
    def encode(texts: list[str]) -> np.ndarray:
        return np.array([[bad if "poison" in text else 1.0, 2.0] for text in texts])

    vectors = SentenceVectors(encode)
    vectors.add(["well", "a poison apple", "fine"])
    assert vectors(["well", "fine"]).tolist() == [[1, 2], [1, 2]]
    with pytest.raises(BadEmbeddings, match=r"for 1 of 2 sentences; .* 'a poison apple'"):
        vectors(["well", "a poison apple"])


def test_a_changed_dimension_raises_when_its_sentences_are_requested() -> None:
    wrong = [True]

    def encode(texts: list[str]) -> np.ndarray:
        return lengths(texts)[:, : 2 if wrong[0] and "bb" in texts else 3]

    vectors = SentenceVectors(encode, block=1)
    vectors.add(["a", "bb", "ccc"])  # the longest one is embedded first
    assert vectors(["a", "ccc"])[:, 0].tolist() == [1, 3]
    cause = r"1 of 2 sentences; the first is 'bb'. .*\(1, 3\) as before, the encoder gave \(1, 2\)"
    with pytest.raises(BadEmbeddings, match=cause):
        vectors(["a", "bb"])
    with pytest.raises(KeyError):
        vectors(["never added"])
    wrong[0] = False
    vectors.add(["a", "bb"])  # another try
    assert vectors(["bb", "a"])[:, 0].tolist() == [2, 1] and vectors.embedded == 3


@pytest.mark.parametrize("shape", [(3,), (2, 4), (3, 0), (3, 2, 2)])
def test_a_wrong_shape_is_named(shape: tuple[int, ...]) -> None:
    vectors = SentenceVectors(lambda texts: np.ones(shape))
    expected = rf"of shape \(3, 'd'\), the encoder gave \({', '.join(map(str, shape))},?\)"
    with pytest.raises(BadEmbeddings, match=expected):
        vectors.add(["a", "b", "c"])


def test_an_interrupted_call_can_be_continued() -> None:
    """A second call embeds what the first one did not reach, and nothing twice."""
    broken = [True]
    encode = Counting()

    def sometimes(texts: list[str]) -> np.ndarray:
        if broken[0] and "a" in texts:
            raise MemoryError
        return encode(texts)

    vectors = SentenceVectors(sometimes, block=1)
    with pytest.raises(MemoryError):
        vectors.add(["a", "bb"])
    broken[0] = False
    vectors.add(["a", "bb", "c"])
    assert vectors.embedded == 3
    assert encode.calls == [["bb"], ["a"], ["c"]]
    np.testing.assert_array_equal(vectors(["a", "c"]), lengths(["a", "c"]).astype(np.float32))
