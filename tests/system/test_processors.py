"""Quotas of processor time, read from made-up control groups."""

import os
from pathlib import Path

import pytest

from declutr.system.processors import (
    allowed_cores,
    allowed_processors,
    cpu_quota,
    usable_processors,
)

V2 = "31 23 0:28 {top} {place} rw,nosuid - cgroup2 cgroup rw,nsdelegate"
V1 = "32 31 0:29 {top} {place} rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct"
OTHER = (
    "33 31 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n40 1 8:1 / / rw - ext4 a rw"
)


def system(root: Path, group: str, mount: str, **files: str) -> Path:
    """A file system with a process in a group, and files by their path (dots for slashes)."""
    proc = root / "proc/self"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text(f"9:name=systemd:/\n4:memory:/a\n{group}\n")
    (proc / "mountinfo").write_text(f"{OTHER}\n{mount}\n")
    for name, text in files.items():
        file = root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    "text, quota",
    [("150000 100000\n", 1.5), ("max 100000\n", None), ("50000 200000", 0.25), ("nonsense", None)],
)
def test_version_2(tmp_path: Path, text: str, quota: float | None) -> None:
    mount = V2.format(top="/", place="/sys/fs/cgroup")
    assert cpu_quota(system(tmp_path, "0::/", mount, **{"cpu.max": text})) == quota


@pytest.mark.parametrize("quota, expected", [("250000", 2.5), ("-1", None), ("0", None)])
def test_version_1(tmp_path: Path, quota: str, expected: float | None) -> None:
    """As docker has it: the process has the host's path, the group alone is mounted."""
    mount = V1.format(top="/docker/1f", place="/sys/fs/cgroup/cpu,cpuacct")
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": f"{quota}\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    root = system(tmp_path, "3:cpu,cpuacct:/docker/1f", mount, **files)
    assert cpu_quota(root) == expected


@pytest.mark.parametrize("inner, outer", [("400000", "100000"), ("100000", "400000")])
def test_the_least_quota_of_groups_in_groups(tmp_path: Path, inner: str, outer: str) -> None:
    files = {
        "pod/cpu.max": f"{outer} 100000",
        "pod/box/cpu.max": f"{inner} 100000",
        "pod/other/cpu.max": "1000 100000",  # of somebody else
    }
    root = system(tmp_path, "0::/pod/box", V2.format(top="/", place="/sys/fs/cgroup"), **files)
    assert cpu_quota(root) == 1.0


def test_a_group_that_is_not_mounted_here(tmp_path: Path) -> None:
    """The paths of a process that was moved, seen from a namespace of groups."""
    for number, (group, top) in enumerate([("0::/../b", "/"), ("0::/c/d", "/"), ("0::/e", "/f")]):
        mount = V2.format(top=top, place="/sys/fs/cgroup")
        root = system(tmp_path / str(number), group, mount, **{"cpu.max": "200000 100000"})
        assert cpu_quota(root) == (None if ".." in group else 2.0), group


def test_without_control_groups(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path) is None
    assert usable_processors(tmp_path) == allowed_processors() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    "quota, expected", [("10000", 1), ("100000", 1), ("250000", 3), ("900000", 5), ("max", 5)]
)
def test_usable_processors(tmp_path: Path, monkeypatch, quota: str, expected: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 6, 7})
    mount = V2.format(top="/", place="/sys/fs/cgroup")
    root = system(tmp_path, "0::/", mount, **{"cpu.max": f"{quota} 100000"})
    assert usable_processors(root) == expected


def test_hyperthreads_of_a_core_count_once(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 6})
    for number, core in {0: "0,4", 4: "0,4", 1: "1,5"}.items():  # of 6 nothing is known
        file = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(f"{core}\n")
    assert allowed_cores(tmp_path) == 3
