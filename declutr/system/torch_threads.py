"""How many threads torch computes with on a CPU: no more than there is processor time for.

torch takes one for each core (or processor, if built without MKL) that this process may run on. It
knows nothing of a quota of a container, nor of other processes that train beside this one. A
parallel part of a computation lasts as long as its slowest thread: with more threads than processor
time, some wait for a processor while the others spin and use up the quota.
"""

from __future__ import annotations

import logging
import math
import os
import socket
from functools import cache

import torch

from declutr.system.distributed import of_all_processes, world_size
from declutr.system.processors import allowed_cores, allowed_processors, cpu_quota

logger = logging.getLogger(__name__)

_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


@cache
def keep_to_quota() -> None:
    """Let torch and numpy compute with no more threads than the container has processors for.

    It looks once in a process, never raises a number of threads, and leaves alone what the user
    has set: `OMP_NUM_THREADS` or `MKL_NUM_THREADS` in the environment, or another number than
    torch's own by `torch.set_num_threads`.
    """
    quota = cpu_quota()
    if quota is None or _chosen_by_user():
        return
    before, wanted = torch.get_num_threads(), max(1, math.ceil(quota))
    if wanted < before:
        set_threads(wanted)
        logger.info(
            "Computing with %d threads instead of %d: that is the processor time that this "
            "container may use (a quota of %g processors). OMP_NUM_THREADS sets another number.",
            *(wanted, before, quota),
        )


def share_processors(device: torch.device) -> None:
    """Divide the threads among the processes of a training that compute on this machine's CPU.

    Each process has torch's own number of them otherwise. It is to be called by all processes, and
    does nothing for a single one, on a GPU, or if the user has set a number of threads.
    """
    if world_size() == 1 or device.type != "cpu":
        return
    machine = socket.gethostname()
    beside = of_all_processes(machine).count(machine)
    before = torch.get_num_threads()
    if _chosen_by_user() or before in _shares:  # another trainer of this process has divided them
        return
    wanted = max(1, before // beside)
    _shares.append(wanted)
    if wanted == before:
        return
    set_threads(wanted)
    logger.info(
        "Computing with %d threads instead of %d: %d processes share the processors of this "
        "machine. OMP_NUM_THREADS sets another number.",
        *(wanted, before, beside),
    )


def _chosen_by_user() -> bool:
    """Whether the user chose the number: by the environment, or one that is neither torch's default
    nor set here.
    """
    if any(os.environ.get(name) for name in _VARIABLES):
        return True
    ours = {allowed_processors(), allowed_cores(), *_set_here}
    return torch.get_num_threads() not in ours


_set_here: list[int] = []
_shares: list[int] = []


def set_threads(count: int) -> None:
    """Let torch and numpy compute with so many threads."""
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    torch.set_num_threads(count)
    _set_here.append(count)
    threadpool_limits(count, user_api="blas")  # that of numpy, as long as this process lives
