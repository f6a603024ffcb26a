"""Streams of texts in lists that memory holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def text_blocks(texts: Iterable[str], most: int, characters: int) -> Iterator[list[str]]:
    """Lists of at most `most` texts, each closed by the text that brings it to `characters`."""
    block: list[str] = []
    held = 0
    for text in texts:
        block.append(text)
        held += len(text)
        if len(block) == most or held >= characters:
            yield block
            block, held = [], 0
    if block:
        yield block
