"""Tests of pieces, batches and means, and of the warning about texts that are cut."""

import heapq
import logging
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from declutr.inference import text_embedding
from declutr.inference.encoder import Encoder
from declutr.inference.text_embedding import batches, mean_of_pieces, not_told, pieces_of, shares

TEXTS = st.lists(st.integers(0, 40).map(lambda length: list(range(length))), max_size=12)


@given(TEXTS, st.integers(1, 50))
def test_truncation_keeps_the_beginning(texts: list[list[int]], limit: int) -> None:
    pieces, truncated = pieces_of(texts, limit)
    assert [piece.row for piece in pieces] == list(range(len(texts)))
    assert [piece.tokens for piece in pieces] == [text[:limit] for text in texts]
    assert all(piece.last for piece in pieces)
    assert truncated == sum(len(text) > limit for text in texts)


@given(TEXTS, st.integers(1, 50))
def test_truncation_can_keep_the_end(texts: list[list[int]], limit: int) -> None:
    pieces, truncated = pieces_of(texts, limit, keeps_end=True)
    assert [piece.tokens for piece in pieces] == [text[-limit:] for text in texts]
    assert truncated == sum(len(text) > limit for text in texts)


@given(TEXTS, st.integers(1, 50))
def test_chunks_are_of_nearly_equal_length(texts: list[list[int]], limit: int) -> None:
    pieces, truncated = pieces_of(texts, limit, "chunk")
    assert truncated == 0
    for row, text in enumerate(texts):
        own = [piece for piece in pieces if piece.row == row]
        lengths = [len(piece.tokens) for piece in own]
        assert [token for piece in own for token in piece.tokens] == text
        assert max(lengths) <= limit and max(lengths) - min(lengths) <= 1
        assert len(own) == max(1, -(-len(text) // limit))  # as few as possible
        assert [piece.last for piece in own] == [False] * (len(own) - 1) + [True]


def test_texts_are_whole_without_a_limit() -> None:
    assert pieces_of([[1] * 99], None, "chunk") == ([(0, [1] * 99, True)], 0)


@given(TEXTS, st.integers(1, 100), st.integers(0, 3), st.none() | st.integers(1, 5))
def test_batches_are_sorted_and_bounded(
    texts: list[list[int]], tokens: int, special: int, most: int | None
) -> None:
    pieces, _ = pieces_of(texts, None)
    found = list(batches(pieces, tokens, special, most))
    order = [number for batch in found for number in batch]
    assert sorted(order) == list(range(len(texts)))
    lengths = [len(texts[number]) for number in order]
    assert lengths == sorted(lengths, reverse=True)
    for batch in found:
        width = max(len(texts[number]) for number in batch) + special
        assert len(batch) == 1 or len(batch) * width <= tokens
        assert most is None or len(batch) <= most


@given(TEXTS, st.integers(1, 3), st.integers(1, 6))
def test_batches_of_a_number_are_about_equally_large(
    texts: list[list[int]], special: int, count: int
) -> None:
    pieces, _ = pieces_of(texts, None)
    found = list(batches(pieces, 10**6, special, count=count))
    assert len(found) == min(count, len(texts))
    sizes = [sum(len(texts[number]) + special for number in batch) for batch in found]
    longest = max((len(text) + special for text in texts), default=0)
    assert all(abs(size - sum(sizes) / count) <= longest for size in sizes) or count > len(texts)


@given(TEXTS, st.integers(1, 4), st.integers(20, 60), st.none() | st.integers(1, 5))
def test_each_thread_gets_a_share(
    texts: list[list[int]], threads: int, tokens: int, most: int | None
) -> None:
    pieces, _ = pieces_of(texts, None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(text_embedding, "_LEAST_TOKENS", 20)
        found = shares(pieces, threads, 1000, tokens, 2, most)
    total = sum(len(text) + 2 for text in texts)
    if threads == 1 or total < threads * 20 or len(texts) < threads:
        assert found is None
        return
    assert found is not None and len(found) >= threads
    assert sorted(number for batch in found for number in batch) == list(range(len(texts)))
    for batch in found:
        assert len(batch) == 1 or len(batch) * (len(texts[batch[0]]) + 2) <= 2 * tokens
        assert most is None or len(batch) <= most


@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("longest", [40, 254, 510])
@pytest.mark.parametrize("spread", [True, False])
def test_threads_end_at_about_the_same_time(threads: int, longest: int, spread: bool) -> None:
    """Each takes the next batch when it has embedded one.

    Lengths are spread as those of sentences and paragraphs, or one text is far longer than others.
    """
    draw = random.Random(0)
    lengths = [int(longest ** draw.uniform(0.2, 1)) for _ in range(512)]
    if not spread:
        lengths = [longest, *[10] * 800]
    pieces, _ = pieces_of([[0] * each for each in lengths], None)
    found = shares(pieces, threads, 16 * 2048, 2048, 2)
    assert found is not None
    sizes = [sum(lengths[number] + 2 for number in batch) for batch in found]
    assert max(sizes) < 1.1 * 2048
    done = [0] * threads
    for size in sizes:
        heapq.heapreplace(done, done[0] + size)
    assert max(done) < (1.06 if spread else 1.25) * sum(done) / threads


def test_a_limit_of_tokens_holds_for_all_threads_with_padding() -> None:
    draw = random.Random(0)
    pieces, _ = pieces_of([[0] * int(500 ** draw.uniform(0.2, 1)) for _ in range(900)], None)
    found = shares(pieces, 4, 8192, 8192, 2)
    assert found is not None and len(found) > 20
    padded = sorted(len(batch) * (len(pieces[batch[0]].tokens) + 2) for batch in found)
    assert 4096 < sum(padded[-4:]) <= 8192


@pytest.mark.parametrize("length", [14, 1000, 8000])
@pytest.mark.parametrize("threads", [2, 8, 16, 64, 128])
@pytest.mark.parametrize("batch_tokens", [None, 1024, 40_000])
def test_memory_is_limited_with_many_threads(
    length: int, threads: int, batch_tokens: int | None
) -> None:
    """Where that leaves too little for each, all threads embed one batch together."""
    pieces, _ = pieces_of([[0] * length] * 2_000, None)
    at_once, tokens = batch_tokens or 16 * 2048, batch_tokens or 2048
    found = shares(pieces, threads, at_once, tokens, 2)
    if found is None:
        assert at_once < threads * max(512, length + 2) or 2_000 * (length + 2) < 512 * threads
        return
    sizes = sorted(((length + 2) * len(batch) for batch in found), reverse=True)
    assert sum(sizes[:threads]) <= at_once
    assert len(found) >= threads and sizes[0] > 0.5 * min(tokens, at_once // threads)


@given(TEXTS.filter(len), st.integers(1, 12))
def test_the_mean_of_pieces_is_weighted_by_tokens(texts: list[list[int]], limit: int) -> None:
    """Average pieces whose embedding is their mean token: the result is the text's mean token."""
    pieces, _ = pieces_of(texts, limit, "chunk")
    vectors = np.array([[np.mean(piece.tokens or [0]), 1.0] for piece in pieces], dtype=np.float32)
    expected = [[np.mean(text or [0]), 1.0] for text in texts]
    means = mean_of_pieces(vectors, pieces, len(texts))
    assert means == pytest.approx(np.array(expected), rel=1e-5)


@pytest.mark.slow
def test_not_told_hides_the_warning_only_inside(
    trained: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = Encoder(trained, device="cpu")
    with not_told():
        encoder(["ka " * 1000])
    assert encoder.truncated_texts == 1
    assert "too long" not in caplog.text
    Encoder(trained, device="cpu")(["ka " * 1000])
    assert "too long" in caplog.text


def test_not_told_restores_the_log_level_after_an_error() -> None:
    logger = logging.getLogger("declutr.inference.encoder")
    before = logger.level
    with pytest.raises(OSError, match="gone"), not_told():
        assert logger.level == logging.ERROR
        raise OSError("gone")
    assert logger.level == before
