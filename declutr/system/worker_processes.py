"""A function applied to a stream by all cores, with results in the order of the stream."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

from declutr.system.processors import usable_processors

logger = logging.getLogger(__name__)

WORKERS_VARIABLE = "DECLUTR_WORKERS"
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h
_PATIENCE = 5.0  # seconds that a process is given to end before it is killed

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerLost(RuntimeError):
    """A process ended without an answer: it was killed, most often for want of memory."""


def default_workers() -> int:
    """Return `$DECLUTR_WORKERS`, or the processors of this process; 1 is no other process.

    Its processors are those that affinity and quota allow (`declutr.system.processors`).

    It is 1 where there can be none: in a daemonic process (a worker of a data loader, say), and on
    systems where a process cannot simply be forked.

    # Raises

    `ValueError` : the variable holds something else than a number of at least 1.
    """
    wanted = os.environ.get(WORKERS_VARIABLE)
    if wanted and not (wanted.isdecimal() and int(wanted) >= 1):
        raise ValueError(
            f"{WORKERS_VARIABLE} is {wanted!r}, expected a number of processes of at least 1. "
            "Unset it to use all cores."
        )
    if multiprocessing.current_process().daemon or sys.platform != "linux":
        return 1
    return int(wanted) if wanted else usable_processors()


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """`map(function, items)`, computed by `workers` forked processes.

    Items are taken from the stream only as fast as they are worked off: never more than two for
    each process are on their way. An exception of the function arrives where its result would
    have. Close the iterator when leaving early (`contextlib.closing`): that ends the processes.
    They also end when this process does, whatever ends it.

    # Raises

    `WorkerLost` : a process was killed.
    """
    pool: dict[Connection, BaseProcess] = {}
    try:
        with _quiet_tokenizers():
            for _ in range(workers):
                try:
                    _start(function, pool)
                except OSError as error:  # a limit of processes or of memory
                    if not pool:
                        raise
                    logger.warning("Going on with %d processes: %s", len(pool), error)
                    break
        yield from _in_order(items, pool)
    finally:
        _end(pool)


def _in_order(items: Iterable[Any], pool: dict[Connection, BaseProcess]) -> Iterator[Any]:
    stream = enumerate(items)
    idle = list(pool)
    busy: dict[Connection, int] = {}
    results: dict[int, tuple[bool, Any]] = {}  # those that came before their turn
    turn = 0
    following = next(stream, None)
    while following is not None or busy or results:
        # A question is only put to a process that waits for one, so the two never write to each
        # other at once, which would block both.
        while following is not None and idle and following[0] < turn + 2 * len(pool):
            number, item = following
            connection = idle.pop()
            try:
                connection.send(item)
            except OSError as error:
                raise _lost(pool[connection]) from error
            busy[connection] = number
            following = next(stream, None)
        for ready in wait(list(busy)):
            connection = cast(Connection, ready)
            try:
                results[busy.pop(connection)] = connection.recv()
            except (EOFError, OSError) as error:
                raise _lost(pool[connection]) from error
            idle.append(connection)
        while turn in results:
            succeeded, result = results.pop(turn)
            if not succeeded:
                raise result
            yield result
            turn += 1


def _start(function: Callable, pool: dict[Connection, BaseProcess]) -> None:
    context = multiprocessing.get_context("fork")
    mine, its = context.Pipe()
    process = context.Process(
        target=_serve,
        args=(function, its, [*pool, mine], os.getpid()),
        daemon=True,
        name="declutr worker",
    )
    process.start()
    its.close()
    pool[mine] = process


def _serve(
    function: Callable, connection: Connection, inherited: list[Connection], parent: int
) -> None:
    """Answer in a worker until the other end of its pipe is closed."""
    # A Ctrl-C goes to all processes of a terminal; the main one decides what it means. Handlers
    # that the main one installed are not for its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with(parent)
    # While a worker held an end of the main process's, no other would learn that it is gone.
    for other in inherited:
        other.close()
    with suppress(EOFError, OSError):
        while True:
            item = connection.recv()
            try:
                succeeded, answer = True, function(item)
            except Exception as error:
                succeeded, answer = False, _portable(error)
            connection.send((succeeded, answer))


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent has ended, even while it computes."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was faster
        os._exit(1)


def _portable(error: Exception) -> Exception:
    """Return the exception with its traceback, which does not travel, as a note, or another one."""
    text = "".join(traceback.format_exception(error))
    try:
        copy = pickle.loads(pickle.dumps(error))
        travels = type(copy) is type(error) and str(copy) == str(error)
    except Exception:
        travels = False
    if not travels:
        return RuntimeError(f"A worker process failed:\n{text}")
    if hasattr(error, "add_note"):  # from Python 3.11 on
        error.add_note(f"In a worker process:\n{text}")
    return error


def _lost(process: BaseProcess) -> WorkerLost:
    process.join(_PATIENCE)
    return WorkerLost(
        f"A worker process ended with exit code {process.exitcode} and gave no answer (-9: killed, "
        f"most often because memory ran out). Start again, with {WORKERS_VARIABLE} set to fewer "
        "processes."
    )


def _end(pool: dict[Connection, BaseProcess]) -> None:
    for connection, process in pool.items():
        connection.close()
        process.terminate()
    for process in pool.values():
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()


@contextmanager
def _quiet_tokenizers() -> Iterator[None]:
    """Fork with the threads of Hugging Face's tokenizers off: each process has one core.

    Set before the fork, else the library warns in every process of what it would do by itself.
    """
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
