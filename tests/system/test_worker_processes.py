"""A parallel map equals the built-in `map`, and its processes always end."""

import multiprocessing
import os
import random
import signal
import time
from contextlib import closing

import pytest

from declutr.system import worker_processes as module
from declutr.system.worker_processes import WorkerLost, default_workers, ordered_map

pytestmark = pytest.mark.slow


def slow_square(number: int) -> int:
    time.sleep(random.random() / 200)
    return number * number


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_results_equal_those_of_map(workers, count):
    assert list(ordered_map(slow_square, range(count), workers)) == [n * n for n in range(count)]
    assert multiprocessing.active_children() == []


def test_the_function_runs_in_other_processes():
    pids = set(ordered_map(lambda _: (time.sleep(0.01), os.getpid())[1], range(40), 3))
    assert len(pids) == 3 and os.getpid() not in pids


def test_items_and_results_may_be_larger_than_a_pipe():
    """Such data is sent in both directions at once without a deadlock."""
    texts = [str(number) * 300_000 for number in range(12)]
    assert list(ordered_map(str.upper, texts, 2)) == texts


def test_items_are_consumed_as_they_are_processed():
    taken = []

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    with closing(ordered_map(slow_square, items(), 2)) as results:
        for number, _ in zip(range(100), results, strict=False):
            assert len(taken) <= number + 2 * 2 + 2


def fails_at_five(number: int) -> int:
    if number == 5:
        raise LookupError("five")
    return number


class TestErrors:
    def test_an_error_is_raised_in_place_of_its_result(self):
        got = []
        with pytest.raises(LookupError) as caught:
            for result in ordered_map(fails_at_five, range(100), 2):
                got.append(result)
        assert got == [0, 1, 2, 3, 4] and caught.value.args == ("five",)
        assert multiprocessing.active_children() == []

    def test_an_error_that_cannot_be_pickled_is_described(self):
        class Odd(Exception):
            def __init__(self, one, two):
                super().__init__("odd")

        def fail(_):
            raise Odd(1, 2)

        with pytest.raises(RuntimeError, match=r"(?s)worker process failed:.*in fail.*odd"):
            list(ordered_map(fail, range(3), 2))

    def test_an_error_of_the_stream_is_raised(self):
        def items():
            yield 1
            raise LookupError("no more")

        with pytest.raises(LookupError, match="no more"):
            list(ordered_map(slow_square, items(), 2))
        assert multiprocessing.active_children() == []

    def test_a_killed_worker_is_reported(self):
        def die(number):
            if number == 7:
                os.kill(os.getpid(), signal.SIGKILL)
            return number

        with pytest.raises(
            WorkerLost, match=r"ended with exit code -9 .*DECLUTR_WORKERS set to fewer"
        ):
            list(ordered_map(die, range(100), 2))
        assert multiprocessing.active_children() == []


def test_closing_the_iterator_ends_the_processes():
    with closing(ordered_map(slow_square, range(10**9), 2)) as results:
        assert [next(results) for _ in range(3)] == [0, 1, 4]
        assert len(multiprocessing.active_children()) == 2
    assert multiprocessing.active_children() == []


def test_fewer_processes_are_used_if_no_more_can_start(monkeypatch, caplog):
    original, started = module._start, []

    def start(function, pool):
        if started:
            raise BlockingIOError("Resource temporarily unavailable")
        started.append(1)
        original(function, pool)

    monkeypatch.setattr(module, "_start", start)
    assert list(ordered_map(slow_square, range(9), 4)) == [n * n for n in range(9)]
    assert "Going on with 1 processes: Resource temporarily" in caplog.text


@pytest.mark.parametrize("before", [None, "true"])
def test_tokenizers_in_workers_are_single_threaded(monkeypatch, before):
    name = "TOKENIZERS_PARALLELISM"
    monkeypatch.delenv(name, raising=False)
    if before:
        monkeypatch.setenv(name, before)
    assert set(ordered_map(lambda _: os.environ.get(name), range(4), 2)) == {"false"}
    assert os.environ.get(name) == before


class TestNumberOfWorkers:
    def test_the_default_is_the_number_of_processors(self, monkeypatch):
        monkeypatch.delenv("DECLUTR_WORKERS", raising=False)
        monkeypatch.setattr(module, "usable_processors", lambda: 3)
        assert default_workers() == 3

    def test_the_environment_variable_sets_the_number(self, monkeypatch):
        for text, count in (("1", 1), ("12", 12)):
            monkeypatch.setenv("DECLUTR_WORKERS", text)
            assert default_workers() == count

    @pytest.mark.parametrize("text", ["0", "-2", "two", "1.5"])
    def test_an_invalid_value_is_an_error(self, monkeypatch, text):
        monkeypatch.setenv("DECLUTR_WORKERS", text)
        with pytest.raises(ValueError, match=f"DECLUTR_WORKERS is '{text}', expected a number of"):
            default_workers()

    def test_other_systems_than_linux_have_no_workers(self, monkeypatch):
        monkeypatch.setenv("DECLUTR_WORKERS", "4")
        monkeypatch.setattr(module.sys, "platform", "darwin")
        assert default_workers() == 1

    def test_a_daemonic_process_has_no_workers(self, monkeypatch):
        monkeypatch.setenv("DECLUTR_WORKERS", "4")
        assert list(ordered_map(lambda _: default_workers(), [0], 1)) == [1]
