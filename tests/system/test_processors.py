"""Processors and threads are limited by affinity, quota, the user and other processes."""

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.predictors import Predictor
from threadpoolctl import threadpool_info, threadpool_limits

from declutr import Encoder
from declutr.bridge.repairs import _WorkerContext
from declutr.inference.flow import Flow
from declutr.runs.check.memory import memory_of_machine
from declutr.system import distributed
from declutr.system import processors as module
from declutr.system.processors import (
    allowed_cores,
    allowed_processors,
    cpu_quota,
    keep_to_quota,
    one_thread_if_forked,
    share_processors,
    usable_processors,
)

V2 = "31 23 0:28 {top} {place} rw,nosuid - cgroup2 cgroup rw,nsdelegate"
V1 = "32 31 0:29 {top} {place} rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct"
OTHER = (
    "33 31 0:35 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n40 1 8:1 / / rw - ext4 a rw"
)


def test_a_forked_process_computes_with_one_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the process that it was forked from had computed, whose threads it would wait for."""
    before = torch.get_num_threads()
    monkeypatch.setattr(module, "_computes", [])
    monkeypatch.setattr(module, "_forked", [])
    try:
        torch.set_num_threads(2)
        for _ in range(2):  # not forked
            one_thread_if_forked()
        assert torch.get_num_threads() == 2 and not caplog.records
        monkeypatch.setattr("os.getpid", lambda: -1)
        for _ in range(2):
            one_thread_if_forked()
        assert torch.get_num_threads() == 1
        torch.set_num_threads(2)  # as they are in a thread that has computed before
        one_thread_if_forked()
        assert torch.get_num_threads() == 1
        (record,) = caplog.records
        assert "was forked from one that had embedded texts" in record.message
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["encoder", "predictor", "flow"])
def test_encoders_and_predictors_ask_whether_they_are_in_a_forked_process(
    kind: str, checkpoint: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = torch.get_num_threads()
    if kind == "flow":
        rows = np.random.default_rng(0).normal(size=(64, 16))
        flow = Flow.fit([rows])
        embed: Any = lambda text: flow.transform(rows)  # noqa: E731
    elif kind == "encoder":
        embed = Encoder(checkpoint, device="cpu", dtype="float32")
    else:
        predictor: Any = Predictor.from_path(str(trained))
        embed = lambda text: predictor.predict(text)["embeddings"]  # noqa: E731
    expected = embed("ka lo")
    try:
        torch.set_num_threads(2)
        monkeypatch.setattr(module, "_computes", [-1])
        monkeypatch.setattr(module, "_forked", [])
        assert np.allclose(embed("ka lo"), expected, atol=1e-6)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def system(root: Path, group: str, mount: str, **files: str) -> Path:
    """Write the files that describe a process in a control group, and return the root.

    `files` are the contents of files by their path below `sys/fs/cgroup`.
    """
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
def test_the_quota_of_control_groups_version_2(
    tmp_path: Path, text: str, quota: float | None
) -> None:
    mount = V2.format(top="/", place="/sys/fs/cgroup")
    assert cpu_quota(system(tmp_path, "0::/", mount, **{"cpu.max": text})) == quota


@pytest.mark.parametrize("quota, expected", [("250000", 2.5), ("-1", None), ("0", None)])
def test_the_quota_of_control_groups_version_1(
    tmp_path: Path, quota: str, expected: float | None
) -> None:
    """In Docker, the process sees its path on the host, but only its own group is mounted."""
    mount = V1.format(top="/docker/1f", place="/sys/fs/cgroup/cpu,cpuacct")
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": f"{quota}\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    root = system(tmp_path, "3:cpu,cpuacct:/docker/1f", mount, **files)
    assert cpu_quota(root) == expected


@pytest.mark.parametrize("inner, outer", [("400000", "100000"), ("100000", "400000")])
def test_the_least_quota_of_nested_groups_counts(tmp_path: Path, inner: str, outer: str) -> None:
    files = {
        "pod/cpu.max": f"{outer} 100000",
        "pod/box/cpu.max": f"{inner} 100000",
        "pod/other/cpu.max": "1000 100000",  # the group of another process
    }
    root = system(tmp_path, "0::/pod/box", V2.format(top="/", place="/sys/fs/cgroup"), **files)
    assert cpu_quota(root) == 1.0


@pytest.mark.parametrize("version", [1, 2])
def test_the_least_memory_of_nested_groups_counts(tmp_path: Path, version: int) -> None:
    """As of a job of a scheduler, whose group is not that of the root of the file system."""
    name, group, mount = "memory.max", "0::/slurm/job", V2
    if version == 1:  # `system` writes that the process is in `a` there
        name, group, mount = (
            "memory.limit_in_bytes",
            "3:cpu:/slurm",
            V1.replace("cpuacct", "memory"),
        )
    mount = mount.format(top="/", place="/sys/fs/cgroup")
    limits = {"slurm/job": "max", "slurm": "3000000", "a": "2000000", "other": "1000"}
    files = {f"{folder}/{name}": f"{limit}\n" for folder, limit in limits.items()}
    root = system(tmp_path, group, mount, **files)
    assert memory_of_machine(root) == (2000000 if version == 1 else 3000000)


def test_a_group_outside_the_mount_has_the_quota_of_the_mount(tmp_path: Path) -> None:
    """A process that was moved in a namespace of control groups sees such paths."""
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
def test_usable_processors_are_limited_by_affinity_and_quota(
    tmp_path: Path, monkeypatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 6, 7})
    mount = V2.format(top="/", place="/sys/fs/cgroup")
    root = system(tmp_path, "0::/", mount, **{"cpu.max": f"{quota} 100000"})
    assert usable_processors(root) == expected


def test_hyperthreads_of_a_core_count_once(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 4, 6})
    for number, core in {0: "0,4", 4: "0,4", 1: "1,5"}.items():  # The core of 6 is unknown.
        file = tmp_path / f"sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(f"{core}\n")
    assert allowed_cores(tmp_path) == 3


CPU = torch.device("cpu")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that sets the processors, the quota, and the threads of torch."""
    before = torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    def give(processors: int, quota: float | None, threads: int | None = None) -> None:
        monkeypatch.setattr(module, "allowed_processors", lambda: processors)
        monkeypatch.setattr(module, "allowed_cores", lambda: processors)
        monkeypatch.setattr(module, "cpu_quota", lambda: quota)
        monkeypatch.setattr(module, "_set_here", [])
        monkeypatch.setattr(module, "_shares", [])
        torch.set_num_threads(threads or processors)
        keep_to_quota.cache_clear()

    with threadpool_limits(8, user_api="blas"):  # which is restored on exit
        yield give
    keep_to_quota.cache_clear()
    torch.set_num_threads(before)


@pytest.mark.parametrize("quota, threads", [(2.0, 2), (1.5, 2), (0.3, 1), (4.0, 4), (9.0, 4)])
def test_threads_are_reduced_to_the_quota(machine, caplog, quota: float, threads: int) -> None:
    machine(4, quota)
    with caplog.at_level(logging.INFO, "declutr.system.processors"):
        keep_to_quota()
    assert torch.get_num_threads() == threads
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (threads < 4)
    if told:
        assert (
            f"{threads} threads instead of 4" in told[0] and f"of {quota:g} processors" in told[0]
        )
        blas = [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]
        assert blas and set(blas) == {threads}


def test_threads_stay_without_a_quota(machine) -> None:
    machine(4, None)
    keep_to_quota()
    assert torch.get_num_threads() == 4


def test_only_the_first_call_sets_threads(machine) -> None:
    machine(4, 2.0)
    keep_to_quota()
    torch.set_num_threads(3)
    keep_to_quota()
    assert torch.get_num_threads() == 3


def test_threads_that_the_user_has_set_are_kept(machine, monkeypatch) -> None:
    machine(4, 1.0, threads=3)
    keep_to_quota()
    assert torch.get_num_threads() == 3
    machine(4, 1.0)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    keep_to_quota()
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(
    "machines, quota, threads",
    [("aa", None, 4), ("aaa", None, 2), ("ab", None, 8), ("aa", 5.0, 2), ("a" * 20, None, 1)],
)
def test_processes_of_one_machine_share_its_threads(
    machine, monkeypatch, machines: str, quota: float | None, threads: int
) -> None:
    machine(8, quota)
    monkeypatch.setattr(distributed, "world_size", lambda: len(machines))
    monkeypatch.setattr(distributed, "of_all_processes", lambda _: list(machines))
    monkeypatch.setattr(module.socket, "gethostname", lambda: "a")
    keep_to_quota()
    share_processors(CPU)
    assert torch.get_num_threads() == threads
    share_processors(CPU)  # a second trainer
    assert torch.get_num_threads() == threads


def test_a_single_process_or_a_gpu_shares_nothing(machine, monkeypatch) -> None:
    machine(8, None)
    share_processors(CPU)
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    share_processors(torch.device("cuda"))  # does not ask other processes
    assert torch.get_num_threads() == 8


def _threads_of_worker(answer: multiprocessing.SimpleQueue) -> None:
    large = torch.ones(1 << 20)  # computed in parallel, if there were more threads
    told = os.environ.get("TOKENIZERS_PARALLELISM")
    answer.put((torch.get_num_threads(), float((large + 1).sum()), told))


@pytest.mark.slow
def test_a_worker_of_allennlps_loader_computes_with_one_thread(machine, monkeypatch) -> None:
    """With more threads, a fork of a process that has computed would wait for them forever."""
    machine(2, None)
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    torch.ones(1 << 20).add(1)
    context = _WorkerContext(multiprocessing.get_context("fork"))
    answer = context.SimpleQueue()
    process = context.Process(target=_threads_of_worker, args=(answer,), daemon=True)
    process.start()
    process.join(20)
    alive = process.is_alive()
    process.kill()
    assert not alive and answer.get() == (1, 2 << 20, "false")
