"""Tests of processes that end with the work that has begun them."""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event

import pytest

from declutr.system import begun_processes

pytestmark = pytest.mark.slow


class Terminated(Exception):
    """What AllenNLP's handler of SIGTERM raises."""


@pytest.fixture
def processes() -> Iterator[list[BaseProcess]]:
    """A list for processes, which are killed after the test."""
    begun: list[BaseProcess] = []
    yield begun
    for one in begun:
        one.kill()
        one.join()


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


@pytest.mark.parametrize("error", [Terminated(), KeyboardInterrupt()])
def test_they_end_where_the_first_process_alone_is_stopped(
    error: BaseException, processes: list[BaseProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(begun_processes, "_PATIENCE", 0.1)
    processes += [sleeping(60), sleeping(60), sleeping(60, daemon=True)]  # of a data loader
    begun_processes.end_processes(processes, error)
    assert [one.exitcode for one in processes] == [-signal.SIGTERM] * 2 + [None]


def test_after_ctrl_c_in_a_terminal_they_are_waited_for(processes: list[BaseProcess]) -> None:
    """One has ended, so that all were told; the other one writes an archive."""
    processes += map(sleeping, [0, 0.5])
    begun_processes.end_processes(processes, KeyboardInterrupt())
    assert [one.exitcode for one in processes] == [0, 0]


def test_one_that_does_not_end_is_killed(
    processes: list[BaseProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that waits for a device, where Python sees no signal."""
    monkeypatch.setattr(begun_processes, "_MOST", 0.5)
    processes += [sleeping(60, heedless=True), sleeping(60)]
    begun_processes.end_processes(processes, Terminated())
    assert [one.exitcode for one in processes] == [-signal.SIGKILL, -signal.SIGTERM]
