"""Tests of `declutr.kernel_choices`."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from declutr import kernel_choices
from declutr.kernel_choices import FILE_NAME, PLAIN, VARIABLE, KernelChoices, processor


class Clock:
    """Time that passes only where a test says so."""

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


def test_the_quickest_is_measured_once_and_kept(clock: Clock, cache: Path) -> None:
    ways = clock.ways(plain=2e-3, quick=1e-3, slow=3e-3)
    assert KernelChoices().quickest("a product", ways) == "quick"
    assert clock.runs.count("quick") == clock.runs.count(PLAIN) > 1
    clock.runs.clear()
    # Another process, for which something else would be quicker now.
    assert KernelChoices().quickest("a product", clock.ways(plain=1e-3, quick=2e-3)) == "quick"
    assert clock.runs == []
    known = json.loads((cache / FILE_NAME).read_text())
    assert known == {processor(): {f"a product, {torch.get_num_threads()} threads": "quick"}}


def test_what_is_near_to_even_stays_plain(clock: Clock) -> None:
    assert KernelChoices().quickest("even", clock.ways(plain=1.05e-3, quick=1e-3)) == PLAIN


def test_a_way_that_fails_here_is_left_out(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise RuntimeError("no such instruction")

    ways = clock.ways(plain=2e-3, quick=1e-3)
    with caplog.at_level(logging.INFO):
        chosen = KernelChoices().quickest("some", lambda: {**ways(), "other": fails})
    assert chosen == "quick"
    assert "no such instruction" in caplog.text


def test_the_environment_switches_it_off(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PLAIN)
    assert KernelChoices().quickest("off", clock.ways(plain=2.0, quick=1.0)) == PLAIN
    assert clock.runs == []


@pytest.mark.parametrize("content", ["{", "[]", '{"this": 3}', ""])
def test_a_damaged_file_is_made_anew(clock: Clock, cache: Path, content: str) -> None:
    (cache / FILE_NAME).write_text(content)
    assert KernelChoices().quickest("damaged", clock.ways(plain=2e-3, quick=1e-3)) == "quick"
    assert "quick" in (cache / FILE_NAME).read_text()


def test_a_cache_that_cannot_be_written_is_done_without(
    clock: Clock, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "file").write_text("no folder")
    monkeypatch.setenv("DECLUTR_CACHE", str(cache / "file"))
    choices = KernelChoices()
    assert choices.quickest("unkept", clock.ways(plain=2e-3, quick=1e-3)) == "quick"
    clock.runs.clear()
    assert choices.quickest("unkept", clock.ways(plain=2e-3, quick=1e-3)) == "quick"
    assert clock.runs == []


def test_a_resumed_run_takes_its_kernels_or_says_that_it_cannot(clock: Clock) -> None:
    first, again = KernelChoices(), KernelChoices()
    first.quickest("a product", clock.ways(plain=2e-3, quick=1e-3))
    record = json.loads(json.dumps(first.record()))
    assert again.resume(record) is None
    assert again.taken() == first.taken()
    assert not again.all_plain
    for what, other in (("processor", "another"), ("threads", 99)):
        elsewhere = KernelChoices()
        assert str(other) in str(elsewhere.resume({**record, what: other}))
        assert elsewhere.taken() == {}
    assert "1.7" in str(KernelChoices().resume(None))
