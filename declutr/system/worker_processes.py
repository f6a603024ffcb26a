"""Parallel application of a function to a stream, with results in the order of the stream."""

import ctypes
import logging
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar, cast

from declutr.system import variable_set
from declutr.system.processors import usable_processors

logger = logging.getLogger(__name__)

WORKERS_VARIABLE = "DECLUTR_WORKERS"
"""The environment variable that sets the number of worker processes."""
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h
_PATIENCE = 5.0  # seconds that a process has to end before it is killed

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkerLost(RuntimeError):
    """Raised if a worker process was killed, most often because memory ran out."""


def default_workers() -> int:
    """Return the default number of worker processes, where 1 means to work in this process.

    It is the value of `DECLUTR_WORKERS`, or else the number of processors that this process may
    use (`declutr.system.processors`). It is 1 where worker processes are impossible: in a daemonic
    process, such as a worker of a data loader, and on systems other than Linux, where processes
    cannot be forked safely.

    # Raises

    `ValueError` : if the variable is not a number of at least 1.
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
    """Yield the results of `map(function, items)`, computed by forked processes.

    Items are consumed only as fast as they are processed: at most two per process are under way.
    Close the iterator (`contextlib.closing`) to end the processes early. They also end with this
    process, even if it is killed.

    # Parameters

    function : the function to apply; it need not be picklable, but its results must be.
    items : a stream of picklable items.
    workers : the number of processes; fewer are used if the system refuses to start more.

    # Returns

    An iterator over the results, in the order of the items. An exception in the function is raised
    at the place of its result.

    # Raises

    `WorkerLost` : if a process was killed.
    """
    pool: dict[Connection, BaseProcess] = {}
    try:
        # The workers use all processors already. The variable has to be set before the fork, or the
        # tokenizers library warns in every process that it disables its threads.
        with variable_set("TOKENIZERS_PARALLELISM", "false"):
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
    results: dict[int, tuple[bool, Any]] = {}  # by number, until it is their turn
    turn = 0
    following = next(stream, None)
    while following is not None or busy or results:
        # An item is sent only to an idle process. Otherwise both sides could write to their pipe at
        # the same time, and block each other.
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
    """Compute results in a worker process until the other end of its pipe is closed."""
    # Ctrl-C reaches all processes of a terminal, and the main process decides how to react. The
    # signal handlers that it has installed must not run in its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _end_with(parent)
    # While a worker keeps an inherited end of the main process open, the worker at the other end
    # would not notice the end of the main process.
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
    """Make the kernel kill this process when its parent ends, even during a computation."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # The parent had ended before the call.
        os._exit(1)


def _portable(error: Exception) -> Exception:
    """Return an exception that can be pickled and contains the traceback of `error` as text.

    It is `error` itself with a note, or a `RuntimeError` if `error` cannot be pickled.
    """
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
