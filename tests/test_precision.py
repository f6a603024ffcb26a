"""Which context training runs in, without a GPU: what torch would say of one is made up."""

import contextlib
import logging
from collections.abc import Iterator

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from declutr import precision
from declutr.precision import training_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")
pytestmark = pytest.mark.filterwarnings("ignore:.*(CUDA is not available|type of 'cuda').*")


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    precision._has_bfloat16.cache_clear()
    yield
    precision._has_bfloat16.cache_clear()


def product_in(context: contextlib.AbstractContextManager) -> torch.dtype:
    with context:
        return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype


@pytest.mark.parametrize(
    "name, expected",
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_on_a_cpu(name: str, expected: torch.dtype) -> None:
    assert product_in(training_precision(name, CPU)) is expected
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("supported", [True, False])
def test_auto_on_a_gpu(
    supported: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[bool] = []

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        asked.append(including_emulation)
        return supported

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    with caplog.at_level(logging.INFO, "declutr.precision"):
        contexts = [training_precision("auto", GPU) for _ in range(3)]
    for context in contexts:
        assert isinstance(context, torch.autocast) is supported
        if supported:
            assert context.device == "cuda" and context.fast_dtype is torch.bfloat16
    assert asked == [False]  # emulated bfloat16 would be slower than float32
    (message,) = (r.getMessage() for r in caplog.records if r.name == "declutr.precision")
    assert message.startswith("Training in bfloat16" if supported else "Training in float32")


@pytest.mark.parametrize("name", ["auto", "bfloat16", "float32"])
def test_an_autocast_that_is_on_stays(name: str) -> None:
    with torch.autocast("cpu", dtype=torch.float16):
        assert product_in(training_precision(name, CPU)) is torch.float16


@pytest.mark.parametrize("name", ["float16", "bf16", "", "Float32"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Unknown precision '{name}'.*auto, bfloat16"):
        training_precision(name, CPU)
