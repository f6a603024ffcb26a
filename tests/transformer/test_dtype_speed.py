"""Tests of the measured speed of dtypes.

A dtype that is slower than float32 is not used, which is reported everywhere. The speed of training
is measured once, without side effects.
"""

import functools
import json
import logging
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
import torch

from declutr import Encoder
from declutr.inference import encoder_processes
from declutr.inference.bulk import EmbeddingFolderError, embed_rows
from declutr.inference.sources import open_encoder
from declutr.system import kernel_choices
from declutr.system.kernel_choices import (
    CHOICES,
    FILE_NAME,
    PLAIN,
    VARIABLE,
    least_seconds,
    processor,
)
from declutr.transformer import dtype_speed, int8_product
from declutr.transformer.dtype_speed import training_seconds

TEXTS = ["ka lo", "mi tu re"]


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that sets the time of other dtypes as a multiple of float32's."""
    monkeypatch.delenv(dtype_speed.KEEP)

    def set_speed(times: float) -> None:
        seconds = {"float32": 0.002, "bfloat16": 0.002 * times, "int8": 0.002 * times}
        monkeypatch.setattr(dtype_speed, "dtype_seconds", lambda: seconds)

    return set_speed


def dtype_of(encoder: Encoder) -> str:
    return encoder.describe()["dtype"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == dtype_speed.__name__]


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_a_slow_dtype_is_replaced_by_float32(checkpoint: Path, speed, caplog, dtype: str) -> None:
    speed(21.4)
    encoder = Encoder(checkpoint, dtype=dtype, device="cpu")
    exact = Encoder(checkpoint, dtype="float32", device="cpu")
    assert encoder.describe() == exact.describe()
    assert np.array_equal(encoder(TEXTS), exact(TEXTS))
    (told,) = warnings(caplog)
    assert f"{dtype} gains nothing" in told
    assert f"42.80 ms in {dtype} and 2.00 ms in float32" in told
    assert "Embeddings are computed in float32 instead" in told and "DECLUTR_KEEP_DTYPE=1" in told


@pytest.mark.parametrize(
    ("asked", "times", "environment", "used"),
    [
        pytest.param("int8", 0.9, {}, "int8", id="fast"),
        pytest.param("int8", 0.9, {"DECLUTR_KERNELS": PLAIN}, "int8", id="fast-plain-kernels"),
        pytest.param("int8", 0.92, {}, "float32", id="less-than-a-tenth-is-no-gain"),
        pytest.param("int8", 30, {dtype_speed.KEEP: "1"}, "int8", id="slow-but-kept"),
        pytest.param("auto", 2, {}, "float32", id="auto"),
    ],
)
def test_the_speed_decides_about_the_dtype(
    checkpoint: Path, speed, caplog, monkeypatch, asked: str, times: float, environment, used: str
) -> None:
    speed(times)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert dtype_of(Encoder(checkpoint, dtype=asked, device="cpu")) == used
    assert bool(warnings(caplog)) is (asked != "auto" and used != asked)


def test_a_wrong_variable_is_refused(checkpoint: Path, speed, monkeypatch) -> None:
    speed(30)
    monkeypatch.setenv(dtype_speed.KEEP, "true")
    with pytest.raises(ValueError, match=r"DECLUTR_KEEP_DTYPE=true .* expected 0 or 1"):
        Encoder(checkpoint, dtype="int8", device="cpu")


def test_an_unsupported_dtype_is_replaced_by_float32(checkpoint: Path, monkeypatch, caplog) -> None:
    monkeypatch.delenv(dtype_speed.KEEP)
    monkeypatch.setattr(dtype_speed, "dtype_seconds", lambda: {"float32": 0.002})
    assert dtype_of(Encoder(checkpoint, dtype="int8", device="cpu")) == "float32"
    assert "no kernel of torch in int8" in warnings(caplog)[0]


def test_several_processes_use_the_same_dtype(checkpoint: Path, speed, caplog, monkeypatch) -> None:
    """Each process has fewer threads, with which it could measure another result."""
    speed(30)
    monkeypatch.setenv(dtype_speed.KEEP, "0")  # and as it was afterwards
    monkeypatch.setattr(encoder_processes, "_encoder", None)
    devices = SimpleQueue()
    devices.put("cpu")
    opener = functools.partial(Encoder, str(checkpoint), dtype="int8")
    encoder_processes._open(opener, devices, torch.get_num_threads(), {})
    assert encoder_processes._encoder.describe()["dtype"] == "int8" and warnings(caplog) == []


def test_a_run_is_not_resumed_in_another_dtype(checkpoint: Path, speed, tmp_path: Path) -> None:
    def embed() -> None:
        encoder = Encoder(checkpoint, dtype="int8", device="cpu")
        described = encoder.describe()
        embed_rows(encoder, TEXTS, tmp_path, dimension=encoder.dimension, describe=described)

    speed(0.5)
    embed()
    speed(30)
    with pytest.raises(EmbeddingFolderError, match='dtype: "int8" there, "float32" now'):
        embed()


def test_a_report_names_the_dtype_of_scores(checkpoint: Path, speed) -> None:
    speed(30)
    described = open_encoder(f"hf:{checkpoint}?precision=int8", device="cpu").describe()
    assert described["dtype"] == "float32" and described["precision_asked_for"] == "int8"
    speed(0.5)
    described = open_encoder(f"hf:{checkpoint}?precision=int8", device="cpu").describe()
    assert described["dtype"] == "int8" and "precision_asked_for" not in described


def test_a_measurement_is_short_and_taken_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It takes some milliseconds, draws no random numbers, and is not repeated."""
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path))
    before = torch.get_rng_state()
    seconds = dtype_speed.dtype_seconds()
    assert seconds.keys() == {"float32", "bfloat16", "int8"}
    monkeypatch.setattr(dtype_speed, "_ways", lambda: pytest.fail("measured again"))
    assert dtype_speed.dtype_seconds() == seconds
    assert torch.equal(torch.get_rng_state(), before)


def test_torch_without_onednn_is_measured_separately(checkpoint: Path, monkeypatch, caplog) -> None:
    """Simulate a processor without instructions for int8."""
    monkeypatch.delenv(dtype_speed.KEEP)
    monkeypatch.setattr(int8_product, "quickest", lambda shape: PLAIN)
    with torch.backends.mkldnn.flags(enabled=False), caplog.at_level(logging.WARNING):
        assert dtype_of(Encoder(checkpoint, dtype="int8", device="cpu")) == "float32"
    assert "int8 gains nothing on this processor" in warnings(caplog)[0]


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
