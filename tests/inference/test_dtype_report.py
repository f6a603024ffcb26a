"""Tests that the report of dtypes gives the measurements, and the dtypes that settings choose."""

import pytest
import torch

from declutr import Encoder
from declutr.inference import dtype_report as module
from declutr.inference.dtype_report import DtypeSpeed, as_table, dtype_report
from declutr.transformer import dtype_speed


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slow dtypes be replaced as for users, and measure small layers."""
    monkeypatch.delenv(dtype_speed.KEEP)
    monkeypatch.setattr(dtype_speed, "TRAINED_FEATURES", 32)


def give(monkeypatch: pytest.MonkeyPatch, training: float, **embedding: float) -> None:
    """Replace the measurements by the given speeds, relative to float32."""
    seconds = {"float32": 0.002, **{name: 0.002 / times for name, times in embedding.items()}}
    monkeypatch.setattr(dtype_speed, "dtype_seconds", lambda: seconds)
    trained = {"float32": 0.008, "bfloat16": 0.008 / training}
    monkeypatch.setattr(module, "training_seconds", lambda: trained)


def test_a_processor_that_is_faster_in_bfloat16_and_int8(small, monkeypatch) -> None:
    give(monkeypatch, 3.0, bfloat16=4.0, int8=2.0)
    for place in (module, dtype_speed):
        monkeypatch.setattr(place, "has_bfloat16", lambda: True)
    report = dtype_report()
    exact, *others = report.speeds
    assert exact[:3] == ("embedding", "float32", True) and exact.times == 1
    # A product of 256 by 384 by 1536 in 2 ms.
    assert exact.gflops == pytest.approx(2 * 256 * 384 * 1536 / 0.002 / 1e9)
    times = [(speed.work, speed.dtype, pytest.approx(speed.times)) for speed in others]
    assert times == [
        ("embedding", "bfloat16", 4.0),
        ("embedding", "int8", 2.0),
        ("training", "float32", 1.0),
        ("training", "bfloat16", 3.0),
    ]
    assert others[0].gflops == pytest.approx(4 * exact.gflops) and others[0].native
    # Three products of 1024 by 512 by 512 in 8 ms.
    assert others[2].gflops == pytest.approx(6 * 1024 * 512 * 512 / 0.008 / 1e9)
    chosen = {setting: dtype for setting, dtype, _ in report.choices}
    assert chosen['Encoder(dtype="int8")'] == "int8" and chosen['precision "auto"'] == "float32"
    assert chosen['Encoder(dtype="auto")'] == "bfloat16"
    assert '"bfloat16" would train linear layers 3.0 times as fast' in report.choices[-1].why


def test_a_processor_that_is_fastest_in_float32(small, monkeypatch, caplog) -> None:
    give(monkeypatch, 0.2, bfloat16=0.1, int8=0.05)
    for place in (module, dtype_speed):
        monkeypatch.setattr(place, "has_bfloat16", lambda: False)
    report = dtype_report()
    chosen = {setting: (dtype, why) for setting, dtype, why in report.choices}
    assert chosen['Encoder(dtype="int8")'] == ("float32", "int8 takes 20.0 times as long")
    assert chosen['Encoder(dtype="bfloat16")'] == ("float32", "bfloat16 takes 10.0 times as long")
    assert "would train" not in report.choices[-1].why
    assert [speed.native for speed in report.speeds if speed.dtype == "bfloat16"] == [False, False]
    assert caplog.records == []  # the report answers, so nothing is logged


@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_the_report_names_the_dtype_that_an_encoder_takes(
    small, monkeypatch, checkpoint, gain: float
) -> None:
    give(monkeypatch, 1.0, bfloat16=gain, int8=1.0)
    monkeypatch.setattr(dtype_speed, "has_bfloat16", lambda: True)
    chosen = {setting: dtype for setting, dtype, _ in dtype_report().choices}
    described = Encoder(checkpoint, device="cpu").describe()
    assert chosen['Encoder(dtype="auto")'] == described["dtype"]
    assert described["dtype"] == ("bfloat16" if gain > 1 else "float32")


def test_the_report_as_a_table() -> None:
    report = module.DtypeReport(
        *("A processor", ("avx2", "vnni"), 2, 1.5, 2),
        speeds=(DtypeSpeed("training", "bfloat16", False, 123.4, 0.25),),
        choices=(module.DtypeChoice('precision "auto"', "float32", "it is so"),),
    )
    assert as_table(report) == (
        "A processor: avx2, vnni\n"
        "2 processors, a quota of 1.5, 2 threads\n"
        "\n"
        "work       dtype     instructions  GFLOP/s  times float32\n"
        "training   bfloat16  no                123            0.2\n"
        "\n"
        'precision "auto" computes in float32: it is so.'
    )


def test_measuring_draws_no_random_numbers(small) -> None:
    before = torch.get_rng_state()
    report = dtype_report()
    assert len(report.speeds) == 5 and all(speed.gflops > 0 for speed in report.speeds)
    assert torch.equal(torch.get_rng_state(), before)
