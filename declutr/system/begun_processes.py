"""Processes that end with the work that has begun them."""

import multiprocessing
import multiprocessing.connection
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

_PATIENCE = 3.0  # seconds for processes that were told by Ctrl-C themselves


@contextmanager
def ended_on_errors() -> Iterator[None]:
    """End the processes that are begun within this context if it is left by an error or a signal.

    Daemons, which end with this process, are left alone.
    """
    before = set(multiprocessing.active_children())
    try:
        yield
    except BaseException as error:
        begun = set(multiprocessing.active_children()) - before
        _end([one for one in begun if not one.daemon], isinstance(error, KeyboardInterrupt))
        raise


def _end(processes: list[BaseProcess], perhaps_told: bool) -> None:
    """End processes, but wait for them where one has ended by itself: all were told to then.

    After Ctrl-C in a terminal, the first one may be archiving the best weights.
    """
    if perhaps_told and processes:
        ended = multiprocessing.connection.wait([one.sentinel for one in processes], _PATIENCE)
        perhaps_told = bool(ended)
    try:
        for one in processes:
            if not perhaps_told:
                one.terminate()
        for one in processes:
            one.join()
    except KeyboardInterrupt:  # once more: nobody waits for an archive
        for one in processes:
            one.kill()
        raise
