"""The fastest kernel is measured, stored, and adopted by resumed runs."""

import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

from declutr.system import kernel_choices
from declutr.system.kernel_choices import (
    FILE_NAME,
    PLAIN,
    VARIABLE,
    KernelChoices,
    kept_seconds,
    processor,
    usual_defaults,
)
from tests import two_processes


class Clock:
    """A clock that advances only when a kernel of a test runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.runs: list[str] = []

    def __call__(self) -> float:
        return self.now

    def ways(self, **seconds: float) -> Callable[[], dict[str, Callable[[], None]]]:
        def way(name: str, took: float) -> None:
            self.runs.append(name)
            self.now += took

        return lambda: {
            name: lambda name=name, took=took: way(name, took) for name, took in seconds.items()
        }


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(kernel_choices.time, "perf_counter", clock)
    return clock


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


def test_the_fastest_kernel_is_measured_once_and_stored(clock: Clock, cache: Path) -> None:
    ways = clock.ways(plain=2e-3, quick=1e-3, slow=3e-3)
    assert KernelChoices().quickest("a product", ways) == "quick"
    assert clock.runs.count("quick") == clock.runs.count(PLAIN) > 1
    clock.runs.clear()
    # In another process, another kernel would be faster now.
    assert KernelChoices().quickest("a product", clock.ways(plain=1e-3, quick=2e-3)) == "quick"
    assert clock.runs == []
    known = json.loads((cache / FILE_NAME).read_text())
    (kept,) = known[processor()].values()
    assert kept == {
        "plain": pytest.approx(2e-3),
        "quick": pytest.approx(1e-3),
        "slow": pytest.approx(3e-3),
    }
    assert list(known[processor()]) == [f"a product, {torch.get_num_threads()} threads"]


def test_a_small_gain_keeps_the_plain_kernel(clock: Clock) -> None:
    assert KernelChoices().quickest("even", clock.ways(plain=1.02e-3, quick=1e-3)) == PLAIN
    assert KernelChoices().quickest("quicker", clock.ways(plain=1.04e-3, quick=1e-3)) == "quick"


def test_kernels_that_take_nearly_as_long_are_timed_for_longer(clock: Clock) -> None:
    kept_seconds("clear", clock.ways(plain=2e-3, quick=1e-3, slow=1.05e-1))
    clear, clock.now = clock.now, 0.0
    kept_seconds("close", clock.ways(plain=1.05e-3, quick=1e-3, slow=3e-3))
    assert clear < 0.35 < 0.5 < clock.now < 0.52


def test_a_kernel_that_raises_is_left_out(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise RuntimeError("no such instruction")

    ways = clock.ways(plain=2e-3, quick=1e-3)
    with caplog.at_level(logging.INFO):
        chosen = KernelChoices().quickest("some", lambda: {**ways(), "other": fails})
    assert chosen == "quick"
    assert "no such instruction" in caplog.text
    # It is neither tried again nor taken for the fastest.
    assert KernelChoices().quickest("some", lambda: pytest.fail("measured again")) == "quick"


def test_kernels_are_tried_again_if_all_raised() -> None:
    def fails() -> None:
        raise RuntimeError("no memory left")

    assert KernelChoices().quickest("a large one", lambda: {PLAIN: fails}) == PLAIN
    assert KernelChoices().quickest("a large one", lambda: {PLAIN: int}) == PLAIN
    assert kept_seconds("a large one", lambda: pytest.fail("measured again")).keys() == {PLAIN}


def test_the_environment_variable_selects_plain_kernels(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PLAIN)
    assert KernelChoices().quickest("off", clock.ways(plain=2.0, quick=1.0)) == PLAIN
    assert clock.runs == []


def test_another_value_of_the_variable_is_an_error(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "off")
    with pytest.raises(ValueError, match=r"DECLUTR_KERNELS=off .* Set it to 'plain'"):
        KernelChoices().quickest("off", clock.ways(plain=2.0, quick=1.0))


def test_kernels_are_measured_without_a_context_of_torch() -> None:
    """A context would run for each call of torch, and blur what is measured."""

    def ways() -> dict[str, Callable[[], None]]:
        found.append((len(_get_current_function_mode_stack()), torch.empty(0).device.type))
        return {PLAIN: lambda: None}

    found: list[tuple[int, str]] = []
    kept_seconds("by default", ways)
    with torch.device("meta"):
        kept_seconds("elsewhere", ways)
    assert found[0] == (0, "cpu") and found[1][1] == "cpu"


def test_a_choice_may_be_nested_in_the_making_of_kernels() -> None:
    """The kernels themselves may not ask for a choice, as a file is locked while they are timed."""
    choices = KernelChoices()

    def outer() -> dict[str, Callable[[], object]]:
        choices.quickest("the inner one", lambda: {PLAIN: int})
        return {PLAIN: int}

    assert choices.quickest("the outer one", outer) == PLAIN
    assert len(choices.taken()) == 2


def chosen(cache: str) -> str:
    """Return the quickest way, which has another name in each process."""
    os.environ["DECLUTR_CACHE"] = cache
    name = ("one", "other")[torch.distributed.get_rank()]
    ways = {PLAIN: lambda: time.sleep(0.02), name: lambda: None}
    return KernelChoices().quickest("the same", lambda: ways)


@pytest.mark.slow
def test_processes_measure_one_after_the_other(cache: Path) -> None:
    """Both processes return the answer of the first, though each would find another one itself."""
    answers = set(two_processes.run(chosen, str(cache)))
    assert len(answers) == 1 and answers < {"one", "other"}


@pytest.mark.parametrize("content", ["{", "[]", '{"this": 3}', '{"this": {"that": "quick"}}', ""])
def test_a_damaged_file_is_replaced(clock: Clock, cache: Path, content: str) -> None:
    (cache / FILE_NAME).write_text(content)
    assert KernelChoices().quickest("damaged", clock.ways(plain=2e-3, quick=1e-3)) == "quick"
    assert "quick" in (cache / FILE_NAME).read_text()


def test_an_unwritable_cache_folder_is_ignored(
    clock: Clock, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "file").write_text("no folder")
    monkeypatch.setenv("DECLUTR_CACHE", str(cache / "file"))
    choices = KernelChoices()
    assert choices.quickest("unkept", clock.ways(plain=2e-3, quick=1e-3)) == "quick"
    clock.runs.clear()
    assert choices.quickest("unkept", clock.ways(plain=2e-3, quick=1e-3)) == "quick"
    assert clock.runs == []


def test_a_resumed_run_adopts_its_kernels_or_says_why_not(clock: Clock) -> None:
    first, again = KernelChoices(), KernelChoices()
    first.quickest("a product", clock.ways(plain=2e-3, quick=1e-3))
    record = json.loads(json.dumps(first.record()))
    assert again.resume(record) is None
    assert again.taken() == first.taken()
    for what, other in (("processor", "another"), ("threads", 99), ("release", "declutr 1.7")):
        elsewhere = KernelChoices()
        assert str(other) in str(elsewhere.resume({**record, what: other}))
        assert elsewhere.taken() == {}
    assert "1.7" in str(KernelChoices().resume(None))


@pytest.mark.parametrize("before", [True, False])
def test_a_resumed_run_notices_a_change_of_the_variable(monkeypatch, before: bool) -> None:
    if before:
        monkeypatch.setenv(VARIABLE, PLAIN)
    record = KernelChoices().record()
    monkeypatch.setenv(VARIABLE, "" if before else PLAIN)
    assert "DECLUTR_KERNELS=plain" in str(KernelChoices().resume(record))


def test_answers_are_adopted_from_a_process_with_other_threads() -> None:
    choices = KernelChoices()
    choices.adopt({"a product, 64 threads": "onednn", "another, 3 threads": "x"}, threads=64)
    assert choices.quickest("a product", lambda: pytest.fail("measured")) == "onednn"
    assert choices.taken()["another, 3 threads"] == "x"


def test_a_default_dtype_comes_back_when_the_last_thread_is_done() -> None:
    """The default is of all threads, as those of a service that embeds in several of them."""
    torch.set_default_dtype(torch.float64)
    try:
        one, other = usual_defaults(), usual_defaults()
        one.__enter__()
        other.__enter__()
        one.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float32
        other.__exit__(None, None, None)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
