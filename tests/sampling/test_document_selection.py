"""Tests of document selection against plain expressions over all documents at once."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.sampling import document_selection
from declutr.sampling.document_selection import (
    DocumentSelection,
    UnusableDocuments,
    all_rows,
    is_blank,
    rows_where,
    shuffled,
    shuffled_batches,
)
from declutr.sampling.spans import SpanSampler

SAMPLER = SpanSampler(2, 1, 2, 10)  # needs 40 tokens, 4 at the least


@given(
    lengths=st.lists(st.integers(0, 60), max_size=40).map(lambda some: [*some, 40]),
    policy=st.sampled_from(["shrink", "skip"]),
    least=st.integers(0, 40),
    at_once=st.sampled_from([1, 3, 1 << 20]),
)
@settings(max_examples=150, deadline=None)
def test_selects_documents_that_are_long_enough_and_logs_counts(lengths, policy, least, at_once):
    lengths = np.array(lengths)
    from_length = max(least, 4, 40 if policy == "skip" else 0)
    messages = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_selection, "_AT_ONCE", at_once)
        patch.setattr(document_selection.logger, "log", lambda *given: messages.append(given))
        rows = DocumentSelection(policy, least).rows(lengths, SAMPLER, "it")
    assert rows.dtype == np.int32
    assert rows.tolist() == np.flatnonzero(lengths >= from_length).tolist()
    shrunken = int((lengths[rows] < 40).sum())
    left = len(lengths) - len(rows)
    told = (
        f"it: {len(lengths)} documents; {len(rows)} used, of which {shrunken} with shrunken spans; "
        f"{left} skipped ({int((lengths == 0).sum())} blank)."
    )
    assert messages == [(30 if left > len(rows) else 20, told)]  # a warning, if most are left out


def test_the_first_short_row_is_named_wherever_it_lies(monkeypatch):
    monkeypatch.setattr(document_selection, "_AT_ONCE", 2)
    lengths = np.array([40, 3, 50, 39, 38])
    with pytest.raises(UnusableDocuments, match="it: row 4 has 39 tokens, and 2 of 5 documents"):
        DocumentSelection("error").rows(lengths, SAMPLER, "it")


@pytest.mark.parametrize("count", [0, 1, 2, 1000, 70_000])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_shuffled_rows_keep_the_order_of_release_1_0(count, dtype):
    """Compare with the order of release 1.0, which resumed runs depend on."""
    rows = np.arange(count, dtype=dtype) * 3
    before = rows.copy()
    expected = rows[np.random.default_rng((13370, 2)).permutation(count)]
    assert shuffled(rows, (13370, 2)).tolist() == expected.tolist()
    assert rows.tolist() == before.tolist()


@given(
    lengths=st.lists(st.integers(0, 2), max_size=20),
    at_once=st.sampled_from([1, 3, 1 << 20]),
)
def test_finds_documents_without_tokens(lengths, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document_selection, "_AT_ONCE", at_once)
        rows = rows_where(is_blank, np.array(lengths, dtype=np.int64))
    assert rows.tolist() == [row for row, length in enumerate(lengths) if length == 0]
    assert rows.dtype == np.int32
    every = all_rows(len(lengths))
    assert every.tolist() == list(range(len(lengths))) and every.dtype == np.int32
    assert document_selection.row_type(2**31) == np.int64


def batches_of(order: np.ndarray, size: int) -> list[list[int]]:
    """Cut an order into batches as a data loader does."""
    return [order[cut : cut + size].tolist() for cut in range(0, len(order), size)]


def follow_each_other(rows: list[int], count: int) -> bool:
    """Return whether rows are consecutive, where the first row of the corpus follows the last."""
    return all((first + 1) % count == second for first, second in pairwise(rows))


@given(count=st.integers(1, 60), size=st.integers(1, 70), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_shuffled_batches_have_consecutive_rows(count, size, seed):
    rows = np.arange(count, dtype=np.int32)
    order = shuffled_batches(rows, size, (seed, 1))
    assert order.dtype == np.int32 and sorted(order.tolist()) == rows.tolist()
    assert rows.tolist() == list(range(count))
    assert order.tolist() == shuffled_batches(rows, size, (seed, 1)).tolist()
    batches = batches_of(order, size)
    assert all(follow_each_other(batch, count) for batch in batches)
    # Only one batch has both the last and the first rows of the corpus.
    assert sum(batch != sorted(batch) for batch in batches) <= 1


def test_shuffled_batches_keep_to_the_places_of_rows():
    """Check that the rows around a row that was left out are neighbours."""
    rows = np.array([3, 5, 6, 11, 20, 21, 22, 40])
    for seed in range(9):
        places = shuffled_batches(np.arange(8), 3, (seed,))
        assert shuffled_batches(rows, 3, (seed,)).tolist() == rows[places].tolist()


@pytest.mark.parametrize(("count", "size"), [(24, 4), (25, 4), (27, 4), (24, 8)])
def test_any_two_neighbours_share_a_batch_in_some_epoch(count, size):
    """Check this, and that any two are apart in some epoch, also if batches fill the corpus."""
    together, apart = set(), set()
    for seed in range(40):
        for batch in batches_of(shuffled_batches(np.arange(count), size, (seed,)), size):
            assert len(batch) == size or len(batch) == count % size
            together |= set(pairwise(batch))
            apart.add((batch[-1], (batch[-1] + 1) % count))
    everywhere = {(row, (row + 1) % count) for row in range(count)}
    assert together == everywhere == apart


def test_epochs_have_different_orders_of_batches():
    orders = [tuple(shuffled_batches(np.arange(40), 4, (1, epoch)).tolist()) for epoch in range(9)]
    assert len(set(orders)) == 9
    assert len({order[0] for order in orders}) > 4
