"""The speed of training in bfloat16 and float32 is measured once, without side effects."""

import json
from pathlib import Path

import pytest
import torch

from declutr.system import kernel_choices
from declutr.system.kernel_choices import CHOICES, FILE_NAME, VARIABLE, least_seconds, processor
from declutr.transformer import dtype_speed
from declutr.transformer.dtype_speed import training_seconds


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache folder, and make no choices of kernels, which take longer."""
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "plain")
    monkeypatch.setattr(dtype_speed, "TRAINED_FEATURES", 64)
    return tmp_path


def test_training_speed_is_measured_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random, taken = torch.get_rng_state(), CHOICES.taken()
    seconds = training_seconds()
    assert list(seconds) == ["float32", "bfloat16"] and all(0 < s < 5 for s in seconds.values())
    kept = json.loads((folder / FILE_NAME).read_text())[processor()]
    assert list(kept.values()) == [seconds]
    assert torch.equal(torch.get_rng_state(), random) and CHOICES.taken() == taken
    monkeypatch.setattr(kernel_choices, "least_seconds", lambda _: pytest.fail("measured again"))
    assert training_seconds() == seconds
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)  # is another question
    try:
        with pytest.raises(pytest.fail.Exception, match="measured again"):
            training_seconds()
    finally:
        torch.set_num_threads(threads)


def test_measuring_in_inference_mode_works(folder: Path) -> None:
    with torch.inference_mode():
        assert list(training_seconds()) == ["float32", "bfloat16"]


def test_a_much_slower_way_is_timed_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, calls = [0.0], {"quick": 0, "slow": 0}

    def way(name: str, seconds: float) -> None:
        calls[name] += 1
        clock[0] += seconds

    monkeypatch.setattr(kernel_choices.time, "perf_counter", lambda: clock[0])
    quick, slow = 1 / 64, 13 / 64  # exact in binary, and five turns of them are not too long
    ways = {"quick": lambda: way("quick", quick), "slow": lambda: way("slow", slow)}
    found = least_seconds(ways)
    assert found == {"quick": quick, "slow": slow} and calls == {"quick": 5, "slow": 2}
