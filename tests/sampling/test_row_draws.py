"""Tests of random numbers of rows against `document_rng` with the same four arguments."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.sampling.document_selection import shuffled
from declutr.sampling.row_draws import RowDraws, document_rng, text_digest


def first(rng) -> int:
    return int(rng.integers(1 << 62))


def test_rows_draw_the_numbers_of_document_rng() -> None:
    draws = RowDraws(7, resample=True)
    for epoch, row in ((0, 0), (2, 5), (0, 0)):
        assert first(draws.at(epoch, row)) == first(document_rng(7, epoch, row))


def test_each_call_with_a_text_has_a_key_of_its_own() -> None:
    draws, digest = RowDraws(7, resample=True), text_digest("a b")
    draws.begin(3)
    keys = [draws.key_of_text("a b", None, None) for _ in range(2)]
    assert keys == [(3, digest, 0), (3, digest, 1)]
    assert first(draws.at(3, digest, 1)) == first(document_rng(7, 3, digest, 1))
    assert draws.key_of_text("a b", 5, None) == (0, 5)
    assert draws.key_of_text("a b", 5, 2) == (2, 5)
    assert draws.key_of_text("a b", None, 2) == (2, digest)  # does not count as a call
    assert draws.key_of_text("a b", None, None) == (3, digest, 2)


def test_each_epoch_has_an_order_of_its_own() -> None:
    rows = np.arange(9)
    order = RowDraws(7, resample=True).order(rows, 2)
    assert order.tolist() == shuffled(rows, (7, 2)).tolist() != rows.tolist()


def test_without_resampling_every_epoch_draws_the_same_numbers() -> None:
    draws = RowDraws(7, resample=False)
    assert draws.order(np.arange(9), 2).tolist() == list(range(9))
    assert first(draws.at(4, 5, 6)) == first(document_rng(7, 0, 5))
    for _ in range(2):
        assert draws.key_of_text("a b", None, None) == (0, text_digest("a b"))


@pytest.mark.parametrize("fails", [False, True])
def test_calls_in_an_uncounted_block_are_not_counted(fails: bool) -> None:
    draws = RowDraws(7, resample=True)
    draws.key_of_text("a", None, None)
    try:
        with draws.uncounted():
            assert draws.key_of_text("a", None, None)[2] == 0
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert draws.key_of_text("a", None, None)[2] == 1


def test_digests_are_the_same_in_every_process() -> None:
    """Compare with constants, because Python's own `hash` differs between processes."""
    assert text_digest("") == 0xB4B2797457A0A6E4
    assert text_digest("na\u00efve \ud83d") == 0xB01B3497CC125519


@given(st.lists(st.sampled_from("abc"), max_size=12))
def test_calls_are_counted_by_text(texts: list[str]) -> None:
    draws = RowDraws(7, resample=True)
    for place, text in enumerate(texts):
        expected = (0, text_digest(text), texts[:place].count(text))
        assert draws.key_of_text(text, None, None) == expected
    keys = [pickle.loads(pickle.dumps(draws)).key_of_text(text, None, None) for text in "abc"]
    assert keys == [draws.key_of_text(text, None, None) for text in "abc"]


def test_a_new_epoch_counts_calls_from_zero() -> None:
    draws = RowDraws(7, resample=True)
    draws.key_of_text("a", None, None)
    draws.begin(0)  # This is the current epoch, in which counting continues.
    assert draws.key_of_text("a", None, None) == (0, text_digest("a"), 1)
    size = len(pickle.dumps(draws))
    draws.begin(1)
    assert len(pickle.dumps(draws)) < size
    assert draws.key_of_text("a", None, None) == (1, text_digest("a"), 0)


def test_memory_does_not_grow_with_the_length_of_texts() -> None:
    short, long = RowDraws(7, resample=True), RowDraws(7, resample=True)
    short.key_of_text("a", None, None)
    long.key_of_text("a" * 10_000, None, None)
    assert abs(len(pickle.dumps(long)) - len(pickle.dumps(short))) < 10
