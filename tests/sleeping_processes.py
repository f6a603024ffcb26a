"""Processes that sleep, for tests of how they are ended."""

import multiprocessing
import signal
import time
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event


def sleep(seconds: float, heedless: bool, ready: Event) -> None:
    # Another test may have set a handler in the process that this one is forked from.
    signal.signal(signal.SIGTERM, signal.SIG_IGN if heedless else signal.SIG_DFL)
    ready.set()
    time.sleep(seconds)


def sleeping(seconds: float, heedless: bool = False, daemon: bool = False) -> BaseProcess:
    """Return a process that sleeps, and ends when it is terminated, unless it is heedless."""
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    process = context.Process(target=sleep, args=(seconds, heedless, ready), daemon=daemon)
    process.start()
    assert ready.wait(60)
    return process
