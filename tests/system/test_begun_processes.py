"""Tests of processes that end with the work that has begun them."""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

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


def sleep(seconds: float) -> None:
    """Sleep, without the handlers that other tests have set in the process of the tests."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(seconds)


def sleeping(seconds: float, daemon: bool = False) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(
        target=sleep, args=(seconds,), daemon=daemon
    )
    process.start()
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
