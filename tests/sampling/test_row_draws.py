"""Oracle: `document_rng` by the four numbers that a draw depends on."""

import numpy as np
import pytest

from declutr.sampling.document_selection import shuffled
from declutr.sampling.row_draws import RowDraws
from declutr.sampling.spans import document_rng
from declutr.sampling.text_calls import text_digest


def first(rng) -> int:
    return int(rng.integers(1 << 62))


def test_rows() -> None:
    draws = RowDraws(7, resample=True)
    for epoch, row in ((0, 0), (2, 5), (0, 0)):
        assert first(draws.at(epoch, row)) == first(document_rng(7, epoch, row))


def test_texts() -> None:
    draws, digest = RowDraws(7, resample=True), text_digest("a b")
    draws.begin(3)
    assert [draws.key_of_text("a b", None, None) for _ in range(2)] == [
        (3, digest, 0),
        (3, digest, 1),
    ]
    assert first(draws.at(3, digest, 1)) == first(document_rng(7, 3, digest, 1))
    assert draws.key_of_text("a b", 5, None) == (0, 5)
    assert draws.key_of_text("a b", 5, 2) == (2, 5)
    assert draws.key_of_text("a b", None, 2) == (2, digest)  # does not count as a call
    assert draws.key_of_text("a b", None, None) == (3, digest, 2)


def test_order() -> None:
    rows = np.arange(9)
    order = RowDraws(7, resample=True).order(rows, 2)
    assert order.tolist() == shuffled(rows, (7, 2)).tolist() != rows.tolist()
    assert RowDraws(7, resample=False).order(rows, 2).tolist() == rows.tolist()


def test_without_resampling_every_epoch_is_the_first() -> None:
    draws = RowDraws(7, resample=False)
    assert first(draws.at(4, 5, 6)) == first(document_rng(7, 0, 5))
    for _ in range(2):
        assert draws.key_of_text("a b", None, None) == (0, text_digest("a b"))


@pytest.mark.parametrize("fails", [False, True])
def test_uncounted(fails: bool) -> None:
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
