"""A stop of training after the step under way, with a checkpoint of it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger(__name__)

_asked = threading.Event()


def stop_asked() -> bool:
    """Return whether training should stop after the step that is done now."""
    return _asked.is_set()


@contextmanager
def stops_after_a_step(enabled: bool = True) -> Iterator[None]:
    """Return a context in which Ctrl-C stops training after a step, with a checkpoint of it.

    The Checkpointer "atomic" then writes the checkpoint and raises `KeyboardInterrupt`. A second
    Ctrl-C raises it at once. Outside of the main thread, which alone is told of signals, and with
    `enabled` false, the context does nothing.
    """
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: Any) -> None:
        if _asked.is_set():
            raise KeyboardInterrupt
        _asked.set()
        logger.warning("Stopping after this step. Ctrl-C again stops at once.")

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        # `None` stands for a handler that Python did not install and cannot put back.
        signal.signal(signal.SIGINT, signal.default_int_handler if before is None else before)
        _asked.clear()
