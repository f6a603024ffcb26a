"""The number of processors that this process may use, and the number of threads of torch.

In a container, `os.cpu_count()` counts the processors of the host. The container may use fewer, by
the affinity of its processes or the quota of processor time of a control group (`docker run --cpus
2`, `limits.cpu` of Kubernetes). Threads beyond the quota use it up while they spin, and then all
threads pause until its period ends. By default torch uses one thread for each core (without MKL:
each processor) that this process may run on. It ignores quotas and other training processes.
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
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it is imported where it is used: most questions here need no torch
    import torch

logger = logging.getLogger(__name__)

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""The environment variables by which users set the number of threads."""
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

_set_here: list[int] = []  # numbers of threads that this module has set, not the user
_computes: list[int] = []  # the process that computes, or that this one was forked from
_forked: list[int] = []  # this process, if it was forked from one that had computed
_shares: list[int] = []  # numbers of threads that `share_processors` has set


def usable_processors(root: Path = Path("/")) -> int:
    """Return the number of processors that this process may use by its affinity and quota.

    It is at least 1; a quota that is not a whole number is rounded up. `root` is the root of the
    file system, which only tests change.
    """
    quota = cpu_quota(root)
    allowed = allowed_processors()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def allowed_processors() -> int:
    """Return the number of processors that this process may run on, regardless of any quota."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def allowed_cores(root: Path = Path("/")) -> int:
    """Return the number of cores that this process may run on, regardless of any quota.

    In contrast to `allowed_processors`, hyperthreads of one core count once, where the system tells
    which they are. If torch was built with MKL, this is its default number of threads. Only tests
    change `root`, the root of the file system.
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
    """Return the quota of processor time of this process; only tests change `root`.

    # Returns

    The quota in processors, such as 1.5, or `None` if there is no limit. It is the least quota of
    this process's control group and its ancestors, of version 1 and 2, as far as they are mounted.
    """
    folders = control_groups("cpu", root)
    quotas = [quota for folder in folders if (quota := _quota(folder)) is not None]
    return min(quotas, default=None)


def control_groups(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the folders of the control groups of this process, the innermost first.

    # Parameters

    controller : such as "cpu", which has groups of its own in version 1.
    root : the root of the file system, which only tests change.
    """
    try:
        of_process = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except (OSError, ValueError):  # Other systems than Linux do not have these files.
        return
    # Lines have the format ID:CONTROLLERS:PATH, without controllers in version 2.
    groups = [line.split(":", 2)[1:] for line in of_process if line.count(":") >= 2]
    for line in mounts:
        # Lines have the format ID PARENT DEVICE ROOT PLACE OPTIONS [...] - KIND SOURCE OPTIONS.
        mount, _, kind = (part.split() for part in line.partition(" - "))
        if len(mount) < 5 or not kind or kind[0] not in ("cgroup", "cgroup2"):
            continue
        for controllers, path in groups:
            if kind[0] == "cgroup2":
                fits = not controllers
            else:
                both = controllers.split(","), kind[-1].split(",")
                fits = all(controller in names for names in both)
            if fits:
                yield from _upwards(root / mount[4].lstrip("/"), mount[3], path)


def _upwards(place: Path, top: str, path: str) -> Iterator[Path]:
    """Yield the folders of the group `path` and its ancestors up to `top`, mounted at `place`."""
    try:
        below = PurePosixPath(path).relative_to(top)
    except ValueError:  # A container may see the path on its host, but only its own group mounted.
        below = PurePosixPath()
    if ".." not in below.parts:
        yield place / below
        yield from (place / parent for parent in below.parents)


def _quota(folder: Path) -> float | None:
    """Return the quota of a control group in processors, or `None` if it has none."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        processors = int(quota) / int(period)  # "max" (an error here) and -1 mean no limit.
    except (OSError, ValueError, ZeroDivisionError):
        return None
    return processors if processors > 0 else None


@cache
def keep_to_quota() -> None:
    """Reduce the number of threads of torch and numpy to the quota of the container.

    Only the first call in a process has an effect. The number is never raised, and not changed if
    the user has set it, by `THREAD_VARIABLES` in the environment or by `torch.set_num_threads`.
    """
    quota = cpu_quota()
    if quota is None or _chosen_by_user():
        return
    import torch

    _compute_with(
        min(torch.get_num_threads(), max(1, math.ceil(quota))),
        "that is the processor time that this container may use (a quota of %g processors). "
        "OMP_NUM_THREADS sets another number.",
        quota,
    )


def one_thread_if_forked() -> None:
    """Compute with one thread in a process that was forked from one which called this before.

    The threads of torch do not come along, and it would wait for them without end.
    """
    import torch

    here = os.getpid()
    new = bool(_computes) and _computes[-1] != here
    if new:
        _forked[:] = [here]
    _computes[:] = [here]
    # Each Python thread has a number of its own, once it has computed.
    if _forked == [here] and torch.get_num_threads() > 1:
        torch.set_num_threads(1)
        logger.log(
            logging.WARNING if new else logging.DEBUG,
            "This process was forked from one that had embedded texts, or trained, and computes "
            "with one thread: torch would wait for the others without end. Spawned processes have "
            'threads of their own, as `multiprocessing.get_context("spawn")` starts them.',
        )


def share_processors(device: torch.device) -> None:
    """Divide the threads of this machine's CPU among the training processes on it.

    Without this, each process uses torch's default number of threads. All processes must call it.
    It does nothing if there is only one process, or if the user has set the number of threads.

    # Parameters

    device : the device of training; nothing is done unless it is the CPU.
    """
    import torch

    from declutr.system.distributed import of_all_processes, world_size

    if world_size() == 1 or device.type != "cpu":
        return
    machine = socket.gethostname()
    beside = of_all_processes(machine).count(machine)
    before = torch.get_num_threads()
    if _chosen_by_user() or before in _shares:  # an earlier trainer of this process did it
        return
    wanted = max(1, before // beside)
    _shares.append(wanted)
    _compute_with(
        wanted,
        "%d processes share the processors of this machine. OMP_NUM_THREADS sets another number.",
        beside,
    )


def _compute_with(wanted: int, reason: str, amount: float) -> None:
    """Set the number of threads, and log the reason if that changes it."""
    import torch

    before = torch.get_num_threads()
    if wanted != before:
        set_threads(wanted)
        logger.info(f"Computing with %d threads instead of %d: {reason}", wanted, before, amount)


def _chosen_by_user() -> bool:
    """Return whether the user has set the number of threads, by the environment or by torch."""
    if any(os.environ.get(name) for name in THREAD_VARIABLES):
        return True
    import torch

    ours = {allowed_processors(), allowed_cores(), *_set_here}
    return torch.get_num_threads() not in ours


def set_threads(count: int) -> None:
    """Set the number of threads of torch and of the linear algebra of numpy to `count`."""
    import torch
    from threadpoolctl import threadpool_limits  # comes with scikit-learn

    torch.set_num_threads(count)
    _set_here.append(count)
    threadpool_limits(count, user_api="blas")  # Numpy's number stays set until the process ends.


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Return a context in which torch computes with a number of threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def processor_name() -> str:
    """Return the model name of the processor, or its architecture if it has none."""
    return _told_by_processor().get("model name") or platform.processor() or platform.machine()


@cache
def processor_model() -> str:
    """Return a short hash of the processor's model and features.

    A name is not enough: in clouds several models share one name, and ARM processors have none.
    """
    told = _told_by_processor()
    return hashlib.sha256(json.dumps([told.get(name) for name in _MODEL]).encode()).hexdigest()[:8]


@cache
def _told_by_processor() -> dict[str, str]:
    """Return the entries of `/proc/cpuinfo` on the first processor; none except on Linux."""
    try:
        first = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n")[0]
    except OSError:
        return {}
    parts = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in parts}


def instructions() -> tuple[str, ...]:
    """Return the instruction sets of this processor, among those that matter for kernels."""
    import torch

    return tuple(
        name
        for name, questions in _INSTRUCTIONS.items()
        if any(getattr(torch.cpu, question, bool)() for question in questions)
    )
