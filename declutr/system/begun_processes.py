"""Processes that end with the work that has begun them."""

import multiprocessing.connection
from collections.abc import Collection
from multiprocessing.process import BaseProcess

_PATIENCE = 3.0  # seconds for processes that were told by Ctrl-C themselves
_MOST = 30.0  # seconds for those that are told here, which may wait for a device or for each other


def end_processes(processes: Collection[BaseProcess], error: BaseException) -> None:
    """End processes whose work is ended by an error or a signal in the process that began it.

    After Ctrl-C they are waited for if one has ended by itself: in a terminal all were told, and
    the first one may be archiving the best weights.

    # Parameters

    processes : daemons among them, which end with this process, are left alone.
    error : what ends the work, a `KeyboardInterrupt` after Ctrl-C.
    """
    begun = [one for one in processes if not one.daemon]
    told = False
    try:
        if begun and isinstance(error, KeyboardInterrupt):
            told = bool(multiprocessing.connection.wait([one.sentinel for one in begun], _PATIENCE))
        for one in begun:
            if not told:
                one.terminate()
        for one in begun:
            one.join(None if told else _MOST)
            if one.is_alive():
                one.kill()
                one.join()
    except BaseException:  # stopped once more, by Ctrl-C or a signal: nobody waits for an archive
        for one in begun:
            one.kill()
        raise
