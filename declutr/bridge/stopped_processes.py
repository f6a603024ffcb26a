"""A repair of distributed training whose first process is stopped: the others end with it."""

import multiprocessing
import multiprocessing.connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces

_PATIENCE = 3.0  # seconds for processes that were told by Ctrl-C themselves


def ended_with_the_run(module: ModuleType) -> bool:
    """Let the processes of a distributed training end where the process that began them is stopped.

    Ctrl-C in a terminal tells all of them. But a signal to the first process alone, as `kill`, a
    job scheduler and notebooks send it, AllenNLP's processes knew nothing of: they trained on to
    the end, without an archive, and the first process waited for them. In a notebook, the same run
    that was begun again wrote to the same folder beside them. Can be removed when `train_model`
    ends its processes.
    """

    @replaces(module)
    def train_model(original: Any, *args: Any, **kwargs: Any) -> Any:
        before = set(multiprocessing.active_children())
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            begun = set(multiprocessing.active_children()) - before
            _end([one for one in begun if not one.daemon], isinstance(error, KeyboardInterrupt))
            raise

    return True


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
