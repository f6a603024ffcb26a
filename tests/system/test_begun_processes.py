"""Tests of processes that end with the work that has begun them."""

import signal
import threading
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from declutr.system import begun_processes
from tests.sleeping_processes import sleeping

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


def stop_again(number: int, seconds: float) -> None:
    """Send a signal to the main thread after some time, which interrupts what it waits for."""
    main = threading.main_thread().ident
    threading.Timer(seconds, signal.pthread_kill, (main, number)).start()


@pytest.mark.parametrize("archives", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_once_more_they_are_killed(
    number: int, archives: bool, processes: list[BaseProcess]
) -> None:
    """While the first of them is waited for, and while one of them writes an archive."""

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated

    before = signal.signal(number, stopped)
    try:
        processes += [sleeping(0 if archives else 60), sleeping(60)]
        stop_again(number, 0.3)
        with pytest.raises((KeyboardInterrupt, Terminated)):
            begun_processes.end_processes(processes, KeyboardInterrupt())
    finally:
        signal.signal(number, before)
    for one in processes:
        one.join(10)
    first = 0 if archives else -signal.SIGKILL
    assert [one.exitcode for one in processes] == [first, -signal.SIGKILL]
