"""How many processors this process may keep busy: those it may run on, and its quota of their time.

In a container, `os.cpu_count()` counts the processors of the host. What the container may use is
limited by the affinity of its processes, and by a quota of processor time of a control group
(`docker run --cpus 2`, `limits.cpu` of Kubernetes). More threads than that wait for each other:
those that spin use the quota up, and then all of them stand still to the end of its period.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


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
    """Return the same without hyperthreads: processors of one core count once, where that is known.

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
    """The folders of the control groups that this process is in, inmost first."""
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
    """The folder of a group and those around it, where the group `top` is mounted at `place`."""
    try:
        below = PurePosixPath(path).relative_to(top)
    except ValueError:  # a container that sees the paths of its host, and no more than its group
        below = PurePosixPath()
    if ".." not in below.parts:
        yield place / below
        yield from (place / parent for parent in below.parents)


def _quota(folder: Path) -> float | None:
    """Of one group, in processors; `None` if it has none."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text()
            period = (folder / "cpu.cfs_period_us").read_text()
        except (OSError, ValueError):
            return None
    try:
        processors = int(quota) / int(period)  # "max" and -1 stand for no limit
    except (ValueError, ZeroDivisionError):
        return None
    return processors if processors > 0 else None
