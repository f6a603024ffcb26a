"""Oracles: digests that never change, and counting by hand."""

import pickle

from hypothesis import given
from hypothesis import strategies as st

from declutr.sampling.text_calls import TextCalls, text_digest


def test_digests_are_the_same_in_every_process() -> None:
    """Python's own `hash` is not; these numbers are written down."""
    assert text_digest("") == 0xB4B2797457A0A6E4
    assert text_digest("na\u00efve \ud83d") == 0xB01B3497CC125519


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_calls_are_counted_by_text(texts: list[str]) -> None:
    calls = TextCalls()
    for place, text in enumerate(texts):
        expected = (0, text_digest(text), texts[:place].count(text))
        assert calls.key(text) == expected
    keys = [pickle.loads(pickle.dumps(calls)).key(text) for text in "abc"]
    assert keys == [calls.key(text) for text in "abc"]


def test_an_epoch_begins_with_nothing() -> None:
    calls = TextCalls()
    calls.key("a")
    calls.begin(0)  # no other than that of the call before: its number goes on
    assert calls.key("a") == (0, text_digest("a"), 1)
    size = len(pickle.dumps(calls))
    calls.begin(1)
    assert len(pickle.dumps(calls)) < size
    assert calls.key("a") == (1, text_digest("a"), 0)


def test_texts_are_not_kept() -> None:
    short, long = TextCalls(), TextCalls()
    short.key("a")
    long.key("a" * 10_000)
    assert abs(len(pickle.dumps(long)) - len(pickle.dumps(short))) < 10
