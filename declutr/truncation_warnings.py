"""Silence about texts that are longer than a model takes, where they are counted or on purpose."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_told() -> Iterator[None]:
    """Inside, `declutr.Encoder` does not say how many texts it cut; `truncated_texts` counts on."""
    logger = logging.getLogger("declutr.encoder")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
