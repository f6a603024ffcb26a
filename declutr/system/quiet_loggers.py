"""Loggers that say less for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loggers_at(level: int, *names: str) -> Iterator[None]:
    """Inside, the loggers of these names have this level, and their own again afterwards."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, own in zip(loggers, before, strict=True):
            logger.setLevel(own)
