"""The processes of a distributed training end with the one that has begun them."""

import multiprocessing
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from declutr.bridge import stopped_processes

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


def sleeping(seconds: float, daemon: bool = False) -> BaseProcess:
    process = multiprocessing.get_context("fork").Process(
        target=time.sleep, args=(seconds,), daemon=daemon
    )
    process.start()
    return process


def stopped_by(error: BaseException, seconds: list[float], begun: list[BaseProcess]) -> None:
    """Train in processes that sleep so long, until the error stops the one that waits for them."""

    def train_model(settings: Any) -> None:
        begun.extend(map(sleeping, seconds))
        raise error

    module: Any = SimpleNamespace(train_model=train_model)
    assert stopped_processes.ended_with_the_run(module)
    with pytest.raises(type(error)):
        module.train_model({})


@pytest.mark.parametrize("error", [Terminated(), KeyboardInterrupt()])
def test_they_end_where_the_first_process_alone_is_stopped(
    error: BaseException, processes: list[BaseProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopped_processes, "_PATIENCE", 0.1)
    others = [sleeping(60), sleeping(60, daemon=True)]  # of the caller, and of a data loader
    stopped_by(error, [60, 60], processes)
    assert [one.exitcode for one in processes] == [-signal.SIGTERM] * 2
    assert all(one.is_alive() for one in others)
    processes += others


def test_after_ctrl_c_in_a_terminal_they_are_waited_for(processes: list[BaseProcess]) -> None:
    """One has ended, so that all were told; the other one writes an archive."""
    stopped_by(KeyboardInterrupt(), [0, 0.5], processes)
    assert [one.exitcode for one in processes] == [0, 0]


def test_allennlps_command_ends_its_processes(bare: Any) -> None:
    module: ModuleType = bare("allennlp.commands.train")
    plain = module.train_model
    assert stopped_processes.ended_with_the_run(module)
    assert module.train_model.__wrapped__ is plain
