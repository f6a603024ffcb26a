"""Tests of the interface that all named encoders share."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from declutr.inference.open_text_model import chosen_device
from declutr.inference.sources import EncoderError, NamedEncoder, open_encoder


class Given(NamedEncoder):
    """A fake encoder that returns the given vectors."""

    name, spec = "mine", "given:here"

    def __init__(self, vectors: Any, dimension: int | None = None, **settings: Any) -> None:
        self.vectors, self.dimension, self.given = vectors, dimension, settings

    def embed(self, sentences: list[str]) -> Any:
        return self.vectors

    def settings(self) -> dict[str, Any]:
        return {"kind": "given", "place": "here", **self.given}


def test_output_is_float32_and_its_width_is_learnt() -> None:
    encoder = Given(np.ones((2, 3)))
    assert encoder.dimension is None and encoder([]).shape == (0, 0)
    rows = encoder(("a", "b"))
    assert rows.dtype == np.float32 and rows.shape == (2, 3)
    assert encoder.dimension == 3 and encoder([]).shape == (0, 3)
    assert repr(encoder) == "NamedEncoder('mine', 'given:here')"


@pytest.mark.parametrize(
    ("vectors", "dimension", "message"),
    [
        (np.ones((2, 4)), 3, r"mine: expected embeddings .* \(2, 3\) as before, got \(2, 4\)"),
        (np.ones((3, 4)), None, r"expected embeddings of shape \(2, 'd'\), got \(3, 4\)"),
        (np.ones(2), None, r"got \(2,\)"),
        (np.ones((2, 0)), None, r"got \(2, 0\)"),
        ([[1.0], [1.0, 2.0]], None, r"expected numbers of shape \(2, d\), got list"),
        ("text", None, r"expected numbers of shape \(2, d\), got str"),
    ],
)
def test_outputs_that_are_no_embeddings_are_refused(
    vectors: Any, dimension: int | None, message: str
) -> None:
    with pytest.raises(EncoderError, match=message):
        Given(vectors, dimension)(["a", "b"])


def test_inputs_that_are_not_lists_of_strings_are_refused() -> None:
    for wrong in ("text", b"text", Path("lines.txt")):
        kind = "a single one" if wrong == "text" else type(wrong).__name__
        with pytest.raises(TypeError, match=f"Expected texts: a list .*; got {kind}; "):
            Given(np.ones((1, 2)))(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got int at position 1"):
        Given(np.ones((2, 2)))(["text", 3])  # type: ignore[list-item]


def test_the_fingerprint_covers_settings_and_not_the_place() -> None:
    one = Given(None, 2, place="a", pooling="mean").describe()
    assert one == {**one, "kind": "given", "place": "a", "pooling": "mean", "dimension": 2}
    moved = Given(None, 2, place="b", pooling="mean").describe()
    other = Given(None, 2, place="a", pooling="max").describe()
    assert one["fingerprint"] == moved["fingerprint"] != other["fingerprint"]
    encoder = Given(np.ones((1, 2)))
    before = encoder.describe()["fingerprint"]
    encoder(["text"])
    assert encoder.describe()["fingerprint"] == before  # although the dimension is known now
    assert encoder.counts() == {}


def test_sizes_below_one_are_refused() -> None:
    for name in ("batch_size", "max_length"):
        with pytest.raises(EncoderError, match=f"{name} must be at least 1, got 0"):
            open_encoder("random:3", **{name: 0})  # type: ignore[arg-type]


def test_devices_by_name() -> None:
    assert chosen_device("cpu") == torch.device("cpu")
    gpu = torch.cuda.is_available()
    assert chosen_device(None) == torch.device("cuda:0" if gpu else "cpu")
    with pytest.raises(EncoderError, match="Expected a device cpu, cuda or cuda:N, got 'gpu 7'"):
        chosen_device("gpu 7")
    with pytest.raises(EncoderError, match=r"No device 'cuda:99': there are \d+ GPUs"):
        chosen_device("cuda:99")
