"""The dtype of training, without a GPU: the answers of torch for a GPU are simulated."""

import contextlib
import logging
from collections.abc import Callable, Iterator

import pytest
import torch

from declutr.modules import precision
from declutr.modules.precision import training_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")
pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA is not available|type of 'cuda').*")


@pytest.fixture(autouse=True)
def processor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that simulates bfloat16 instructions of the CPU, and their speed."""

    def give(instructions: bool, times: float = 1.0) -> None:
        seconds = {"float32": 0.008, "bfloat16": 0.008 / times}
        monkeypatch.setattr(precision, "has_bfloat16", lambda: instructions)
        monkeypatch.setattr(precision, "training_seconds", lambda: seconds)
        precision._has_bfloat16.cache_clear()
        precision._warn_if_slow.cache_clear()

    give(False)
    yield give
    give(False)


def product_in(context: contextlib.AbstractContextManager) -> torch.dtype:
    with context:
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


@pytest.mark.parametrize(
    "name, expected",
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_the_dtype_on_a_cpu(name: str, expected: torch.dtype) -> None:
    assert product_in(training_precision(name, CPU)) is expected
    assert not torch.is_autocast_enabled("cpu")


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    records = [record for record in caplog.records if record.name == "declutr.modules.precision"]
    return [(record.levelname, record.getMessage()) for record in records]


@pytest.mark.parametrize(
    "times, advice",
    [
        (4.0, 'Set precision to "bfloat16" to train linear layers 4.0 times as fast.'),
        (1.05, "That would be no gain."),
    ],
)
def test_auto_logs_how_much_faster_bfloat16_would_be(
    processor, caplog, times: float, advice: str
) -> None:
    processor(True, times)
    with caplog.at_level(logging.INFO, "declutr.modules.precision"):
        for _ in range(3):
            assert product_in(training_precision("auto", CPU)) is torch.float32
    ((level, message),) = told(caplog)
    assert level == "INFO" and message.startswith("Training in float32: precision is 'auto'")
    assert f"takes 8.00 ms in float32 and {8 / times:.2f} ms in bfloat16. {advice}" in message


def test_auto_on_a_cpu_without_bfloat16(processor, caplog, monkeypatch) -> None:
    monkeypatch.setattr(precision, "training_seconds", lambda: pytest.fail("measured"))
    with caplog.at_level(logging.INFO, "declutr.modules.precision"):
        training_precision("auto", CPU)
    assert [message for _, message in told(caplog)] == [
        "Training in float32: precision is 'auto', and this is a cpu without it."
    ]


@pytest.mark.parametrize("times, warned", [(0.25, True), (0.95, False), (4.0, False)])
def test_slow_bfloat16_causes_a_warning(processor, caplog, times: float, warned: bool) -> None:
    processor(True, times)
    for _ in range(3):
        assert product_in(training_precision("bfloat16", CPU)) is torch.bfloat16
    warnings = [message for level, message in told(caplog) if level == "WARNING"]
    assert len(warnings) == warned
    if warned:
        assert "8.00 ms in float32 and 32.00 ms in bfloat16, 4.0 times as long" in warnings[0]
        assert 'Set precision to "float32"' in warnings[0]


@pytest.mark.parametrize("supported", [True, False])
def test_auto_on_a_gpu(
    supported: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[bool] = []

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        asked.append(including_emulation)
        return supported

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    with caplog.at_level(logging.INFO, "declutr.modules.precision"):
        contexts = [training_precision("auto", GPU) for _ in range(3)]
    for context in contexts:
        assert isinstance(context, torch.autocast) is supported
        if supported:
            assert context.device == "cuda" and context.fast_dtype is torch.bfloat16
    assert asked == [False]  # emulated bfloat16 would be slower than float32
    ((_, message),) = told(caplog)
    assert message.startswith("Training in bfloat16" if supported else "Training in float32")


@pytest.mark.parametrize("name", ["auto", "bfloat16", "float32"])
def test_an_active_autocast_is_not_changed(name: str) -> None:
    with torch.autocast("cpu", dtype=torch.float16):
        assert product_in(training_precision(name, CPU)) is torch.float16
