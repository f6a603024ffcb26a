"""The processors that this process may keep busy, and the threads that torch computes with on them.

In a container, `os.cpu_count()` counts the processors of the host. What the container may use is
limited by the affinity of its processes, and by a quota of processor time of a control group
(`docker run --cpus 2`, `limits.cpu` of Kubernetes). More threads than that wait for each other:
those that spin use the quota up, and then all of them stand still to the end of its period. torch
takes one thread for each core (or processor, if built without MKL) that this process may run on,
and knows nothing of a quota, nor of other processes that train beside this one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import platform
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

import torch

from declutr.system.distributed import of_all_processes, world_size

logger = logging.getLogger(__name__)

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_MODEL = (
    *("vendor_id", "cpu family", "model", "stepping", "flags"),
    *("CPU implementer", "CPU variant", "CPU part", "Features"),
)
_INSTRUCTIONS = {
    "avx2": ("_is_avx2_supported",),
    "avx512": ("_is_avx512_supported",),
    "vnni": ("_is_vnni_supported", "_is_avx512_vnni_supported"),
    "avx512_bf16": ("_is_avx512_bf16_supported",),
    "amx": ("_is_amx_tile_supported",),
}

_set_here: list[int] = []  # numbers of threads that are not the user's choice
_shares: list[int] = []


def usable_processors(root: Path = Path("/")) -> int:
    """Return how many processors this process can keep busy, at least 1.

    A quota of part of a processor counts as a whole one.

    # Parameters

    root : where the file system begins; for tests.
    """
    quota = cpu_quota(root)
    allowed = allowed_processors()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def allowed_processors() -> int:
    """Return how many processors this process may run on, whatever its quota of their time."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def allowed_cores(root: Path = Path("/")) -> int:
    """Return `allowed_processors` without hyperthreads: processors of one core count once, where
    that is known.

    By itself, torch takes that many threads if it was built with MKL.
    """
    if not hasattr(os, "sched_getaffinity"):
        return allowed_processors()
    cores = set()
    for number in os.sched_getaffinity(0):
        file = root / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        try:
            cores.add(file.read_text().strip())
        except OSError:
            cores.add(str(number))
    return len(cores)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the processor time that control groups grant this process, in processors.

    It is the least of those of its group and of the groups around it, as far as they are mounted
    here, of version 1 and 2; `None` stands for no limit.
    """
    quotas = [quota for folder in _groups(root) if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of the control groups that this process is in, inmost first."""
    try:
        of_process = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except (OSError, ValueError):  # another system than Linux
        return
    # ID:CONTROLLERS:PATH, without controllers in version 2
    groups = [line.split(":", 2)[1:] for line in of_process if line.count(":") >= 2]
    for line in mounts:
        # ID PARENT DEVICE ROOT PLACE OPTIONS [...] - KIND SOURCE OPTIONS
        mount, _, kind = (part.split() for part in line.partition(" - "))
        if len(mount) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        for controllers, path in groups:
            if kind[0] == "cgroup2":
                fits = not controllers
            else:
                fits = "cpu" in controllers.split(",") and "cpu" in kind[-1].split(",")
            if fits:
                yield from _upwards(root / mount[4].lstrip("/"), mount[3], path)


def _upwards(place: Path, top: str, path: str) -> Iterator[Path]:
    """Yield the folder of a group and those around it, where the group `top` is at `place`."""
    try:
        below = PurePosixPath(path).relative_to(top)
    except ValueError:  # a container that sees the paths of its host, and no more than its group
        below = PurePosixPath()
    if ".." not in below.parts:
        yield place / below
        yield from (place / parent for parent in below.parents)


def _quota(folder: Path) -> float | None:
    """Return the quota of one group, in processors; `None` if it has none."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        processors = int(quota) / int(period)  # "max" and -1 stand for no limit
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return processors if processors > 0 else None


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
    _compute_with(
        min(torch.get_num_threads(), max(1, math.ceil(quota))),
        "that is the processor time that this container may use (a quota of %g processors). "
        "OMP_NUM_THREADS sets another number.",
        quota,
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
    _compute_with(
        wanted,
        "%d processes share the processors of this machine. OMP_NUM_THREADS sets another number.",
        beside,
    )


def _compute_with(wanted: int, reason: str, amount: float) -> None:
    """Set another number of threads than there is, and log why."""
    before = torch.get_num_threads()
    if wanted != before:
        set_threads(wanted)
        logger.info(f"Computing with %d threads instead of %d: {reason}", wanted, before, amount)


def _chosen_by_user() -> bool:
    """Return whether the number of threads is set by the environment, or is neither torch's default
    nor set here.
    """
    if any(os.environ.get(name) for name in THREAD_VARIABLES):
        return True
    ours = {allowed_processors(), allowed_cores(), *_set_here}
    return torch.get_num_threads() not in ours


def set_threads(count: int) -> None:
    """Let torch and numpy compute with so many threads."""
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    torch.set_num_threads(count)
    _set_here.append(count)
    threadpool_limits(count, user_api="blas")  # that of numpy, as long as this process lives


@cache
def processor_name() -> str:
    """Return the name that the processor gives itself, or its architecture."""
    return _told_by_processor().get("model name", platform.processor() or platform.machine())


@cache
def processor_model() -> str:
    """Return a short hash of model and features: clouds give one name to many, ARM's have none."""
    told = _told_by_processor()
    return hashlib.sha256(json.dumps([told.get(name) for name in _MODEL]).encode()).hexdigest()[:8]


@cache
def _told_by_processor() -> dict[str, str]:
    """Return what Linux says of the first processor."""
    try:
        first = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    parts = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in parts}


def instructions() -> tuple[str, ...]:
    """Return which of the sets of instructions that matter here this processor has."""
    return tuple(
        name
        for name, questions in _INSTRUCTIONS.items()
        if any(getattr(torch.cpu, question, bool)() for question in questions)
    )
