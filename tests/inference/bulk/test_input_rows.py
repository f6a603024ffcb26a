"""Tests of input rows: texts are unchanged, and different rows have different digests."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.inference.bulk.input_rows import InputRows

ROWS = st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=12)


def digest(rows) -> str:
    found = InputRows(rows)
    found.take(1000, 1000)
    return found.digest


@given(ROWS, ROWS)
@settings(max_examples=100, deadline=None)
def test_digests_are_equal_if_and_only_if_rows_are(one, other):
    assert (digest(one) == digest(other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(["ab", "c"], ["a", "bc"]), (["a"], ["a", ""]), ([None], [""]), (["1 a"], ["a"])],
)
def test_similar_rows_have_different_digests(one, other):
    assert digest(one) != digest(other)


def test_the_digest_does_not_depend_on_blocks():
    rows = [f"row {n}" for n in range(3000)]
    by_blocks, skipped = InputRows(rows), InputRows(rows)
    while by_blocks.take(7, 1000):
        pass
    assert skipped.skip(5000) == 3000
    assert by_blocks.digest == skipped.digest and by_blocks.read == skipped.read == 3000


def test_blocks_are_bounded_by_rows_and_by_characters():
    rows = InputRows(["x" * 10] * 100)
    assert len(rows.take(30, 10_000)) == 30
    assert len(rows.take(30, 95)) == 10  # the tenth row reaches 95 characters
    assert len(rows.take(30, 1)) == 1  # at least one row
    assert len(rows.take(1000, 10_000)) == 59 and rows.take(10, 10) == []
    assert rows.read == 100 and rows.bytes == 1100


def test_nothing_is_read_ahead():
    """Take rows of a source that may be slow: a full shard must not wait for the row after it."""
    source = iter(["a", "b", "c"])
    rows = InputRows(source)
    assert rows.take(2, 100) == ["a", "b"] and next(source) == "c"


def test_unusual_rows_are_counted_and_kept():
    rows = InputRows(["", " \t\u3000", None, "a\ufffd", "\ud83d", "\ud83d\ude00", "plain"])
    texts = rows.take(10, 1000)
    assert texts == ["", " \t\u3000", "", "a\ufffd", "\ufffd", "\ufffd\ufffd", "plain"]
    names = ("blank_rows", "unreadable_rows", "replaced_rows")
    assert [getattr(rows.counts, name) for name in names] == [3, 1, 3]
    rows.begin_shard()
    assert [getattr(rows.counts, name) for name in names] == [0, 0, 0] and rows.read == 7
    assert rows.digest == InputRows([]).digest


@given(ROWS, st.integers(0, 15), st.integers(0, 30))
@settings(max_examples=100, deadline=None)
def test_reading_ahead_changes_nothing(rows, most, characters):
    ahead = InputRows(rows)
    ahead.read_ahead(most, characters)
    assert ahead.read == 0
    taken = ahead.take(1000, 1000)
    plain = InputRows(rows)
    assert taken == plain.take(1000, 1000) and ahead.digest == plain.digest


def test_reading_ahead_raises_errors_of_the_source():
    def rows():
        yield "a"
        raise OSError("the disk is gone")

    InputRows(rows()).read_ahead(1, 10)
    with pytest.raises(OSError, match="the disk is gone"):
        InputRows(rows()).read_ahead(2, 10)
