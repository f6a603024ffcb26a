"""Texts in lists, by their number and their characters."""

from hypothesis import given
from hypothesis import strategies as st

from declutr.corpus.text_blocks import text_blocks


def test_many_characters_make_a_block() -> None:
    blocks = list(text_blocks(["a" * 4, "b", "c" * 9, "d"], 100, 5))
    assert blocks == [["aaaa", "b"], ["c" * 9], ["d"]]


@given(st.lists(st.text(max_size=9)), st.integers(1, 5), st.integers(1, 20))
def test_nothing_is_lost(texts: list[str], most: int, characters: int) -> None:
    blocks = list(text_blocks(iter(texts), most, characters))
    assert [text for block in blocks for text in block] == texts
    for block in blocks:
        assert 1 <= len(block) <= most
        assert sum(map(len, block[:-1])) < characters  # the last one closes it
    for block in blocks[:-1]:
        assert len(block) == most or sum(map(len, block)) >= characters
