"""How many threads torch is left with, by quota, user and processes beside this one."""

import logging
import multiprocessing
import os
from collections.abc import Callable, Iterator

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from declutr.bridge.repairs import _WorkerContext
from declutr.system import torch_threads
from declutr.system.torch_threads import keep_to_quota, share_processors

CPU = torch.device("cpu")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Give a machine so many processors, torch as many threads, and the container a quota."""
    before = torch.get_num_threads()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)

    def give(processors: int, quota: float | None, threads: int | None = None) -> None:
        monkeypatch.setattr(torch_threads, "allowed_processors", lambda: processors)
        monkeypatch.setattr(torch_threads, "allowed_cores", lambda: processors)
        monkeypatch.setattr(torch_threads, "cpu_quota", lambda: quota)
        monkeypatch.setattr(torch_threads, "_set_here", [])
        monkeypatch.setattr(torch_threads, "_shares", [])
        torch.set_num_threads(threads or processors)
        keep_to_quota.cache_clear()

    with threadpool_limits(8, user_api="blas"):  # and what it was, in the end
        yield give
    keep_to_quota.cache_clear()
    torch.set_num_threads(before)


@pytest.mark.parametrize("quota, threads", [(2.0, 2), (1.5, 2), (0.3, 1), (4.0, 4), (9.0, 4)])
def test_no_more_threads_than_the_quota(machine, caplog, quota: float, threads: int) -> None:
    machine(4, quota)
    with caplog.at_level(logging.INFO, "declutr.system.torch_threads"):
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


def test_without_a_quota(machine) -> None:
    machine(4, None)
    keep_to_quota()
    assert torch.get_num_threads() == 4


def test_it_looks_once(machine) -> None:
    machine(4, 2.0)
    keep_to_quota()
    torch.set_num_threads(3)
    keep_to_quota()
    assert torch.get_num_threads() == 3


def test_what_the_user_has_set_stays(machine, monkeypatch) -> None:
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
def test_processes_of_a_machine_share_it(
    machine, monkeypatch, machines: str, quota: float | None, threads: int
) -> None:
    machine(8, quota)
    monkeypatch.setattr(torch_threads, "world_size", lambda: len(machines))
    monkeypatch.setattr(torch_threads, "of_all_processes", lambda _: list(machines))
    monkeypatch.setattr(torch_threads.socket, "gethostname", lambda: "a")
    keep_to_quota()
    share_processors(CPU)
    assert torch.get_num_threads() == threads
    share_processors(CPU)  # a second trainer
    assert torch.get_num_threads() == threads


def test_nothing_is_shared_by_one_process_or_on_gpus(machine, monkeypatch) -> None:
    machine(8, None)
    share_processors(CPU)
    monkeypatch.setattr(torch_threads, "world_size", lambda: 2)
    share_processors(torch.device("cuda"))  # and asks no other process
    assert torch.get_num_threads() == 8


def _threads_of_worker(answer: multiprocessing.SimpleQueue) -> None:
    large = torch.ones(1 << 20)  # computed in parallel, if there were more threads
    told = os.environ.get("TOKENIZERS_PARALLELISM")
    answer.put((torch.get_num_threads(), float((large + 1).sum()), told))


def test_a_worker_of_allennlps_loader_computes_with_one_thread(machine, monkeypatch) -> None:
    """Forked from a process whose threads have computed, it would wait for them for ever."""
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
