"""The encoder is silent about texts it cuts, and counts them all the same."""

import logging
from pathlib import Path

import pytest

from declutr.inference.encoder import Encoder
from declutr.inference.truncation_warnings import not_told


def test_silence_that_ends(trained: Path, caplog: pytest.LogCaptureFixture) -> None:
    encoder = Encoder(trained, device="cpu")
    with not_told():
        encoder(["ka " * 1000])
    assert encoder.truncated_texts == 1
    assert "too long" not in caplog.text
    Encoder(trained, device="cpu")(["ka " * 1000])
    assert "too long" in caplog.text


def test_the_level_comes_back_after_an_error() -> None:
    logger = logging.getLogger("declutr.inference.encoder")
    before = logger.level
    with pytest.raises(OSError, match="gone"), not_told():
        assert logger.level == logging.ERROR
        raise OSError("gone")
    assert logger.level == before
