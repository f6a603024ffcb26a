"""Tests of opening untrusted models: errors name the place, and code runs only with trust."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from declutr.archives.safety import BrokenArchive, UnsafeArchive
from declutr.export import ExportError, export_model
from declutr.inference.encoder import Encoder
from declutr.inference.open_text_model import EncoderError
from tests import hostile_archives as hostile


def opened(place: Path, **settings: Any) -> Encoder:
    return Encoder(place, device="cpu", dtype="float32", **settings)


@pytest.fixture(autouse=True)
def no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))


@pytest.fixture
def folder(checkpoint: Path, tmp_path: Path) -> Path:
    place = tmp_path / "model"
    shutil.copytree(checkpoint, place)
    return place


@pytest.fixture
def with_code(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return a transformer that brings code, and the file that the code would make."""
    modules = str(tmp_path / "modules")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", modules)
    hostile.with_remote_code(tmp_path / "marker")(folder)
    return folder, tmp_path / "marker"


def test_code_runs_only_if_it_is_trusted(with_code: tuple[Path, Path], checkpoint: Path) -> None:
    place, marker = with_code
    for settings in ({}, {"pooling": "cls"}, {"kind": "transformer"}):
        with pytest.raises(UnsafeArchive, match=r"config\.json: 'auto_map' names Python code .*tr"):
            opened(place, **settings)
    assert not marker.exists()
    encoder = opened(place, trust=True)
    assert marker.exists()
    texts = ["ka lo mi", "tu"]
    assert np.abs(encoder(texts) - opened(checkpoint)(texts)).max() < 1e-6
    with pytest.raises(ExportError, match="transformer of its own code, which other tools would"):
        export_model(place, place.parent / "exported", onnx=False, trust=True)


@pytest.mark.slow
def test_opening_draws_no_random_numbers(trained: Path, checkpoint: Path) -> None:
    before = torch.get_rng_state()
    for place in (trained, checkpoint):
        opened(place)
        assert torch.equal(torch.get_rng_state(), before)


def test_code_in_a_sentence_transformers_folder_is_refused(
    with_code: tuple[Path, Path], tmp_path: Path
) -> None:
    place, marker = with_code
    shutil.move(place, tmp_path / "whole" / "0_Transformer")
    module = {"idx": 0, "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"}
    (tmp_path / "whole" / "modules.json").write_text(json.dumps([module]))
    with pytest.raises(UnsafeArchive, match=r"0_Transformer/config\.json: 'auto_map' names"):
        opened(tmp_path / "whole")
    assert not marker.exists()


Broken = dict[str, tuple[Callable[[Path], Any], type[Exception], str]]
NOT_LOADED = r"No transformer could be loaded from '.*model'.* config\.json"
BROKEN_TRANSFORMERS: Broken = {
    "tokenizer": (hostile.with_text("tokenizer.json", "{}"), EncoderError, NOT_LOADED),
    "weights": (
        lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 100),
        EncoderError,
        NOT_LOADED,
    ),
    "type": (
        hostile.with_json("config.json", model_type="unheard_of"),
        EncoderError,
        f"{NOT_LOADED}.* `unheard_of`",
    ),
    "billions": (
        hostile.with_json("config.json", vocab_size=2**24),
        UnsafeArchive,
        "asks for 1 parameters of 2,147,483,648 bytes or more .* weight of Embedding",
    ),
}


@pytest.mark.parametrize("name", BROKEN_TRANSFORMERS)
def test_broken_transformers_are_reported(name: str, folder: Path) -> None:
    change, error, message = BROKEN_TRANSFORMERS[name]
    change(folder)
    with pytest.raises(error, match=message) as told:
        opened(folder)
    assert "trust_remote_code" not in str(told.value) and "weights_only" not in str(told.value)


BROKEN_ARCHIVES: Broken = {
    "tokenizer": (
        hostile.with_text("transformer/0/tokenizer.json", "{}"),
        EncoderError,
        r"No model could be built from '{place}': ",
    ),
    "weights of another model": (
        hostile.with_json("transformer/0/config.json", intermediate_size=16),
        EncoderError,
        r"No model could be built from '{place}': RuntimeError: .*size mismatch",
    ),
    "no weights": (
        hostile.without("weights.th"),
        FileNotFoundError,
        r"'{place}' holds no weights \(weights\.th, best\.th\)",
    ),
    "no configuration": (
        hostile.without("config.json"),
        FileNotFoundError,
        r"'{place}' holds no config\.json",
    ),
    "billions": (
        hostile.with_json("transformer/0/config.json", vocab_size=2**28, hidden_size=2),
        UnsafeArchive,
        r"asks for 1 parameters of 2,147,483,648 bytes",
    ),
}


def changed(trained: Path, tmp_path: Path, change: Callable[[Path], Any]) -> Path:
    (tmp_path / "content").mkdir()
    return hostile.changed(trained / "model.tar.gz", tmp_path / "content", change)


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN_ARCHIVES)
def test_broken_archives_are_reported(name: str, trained: Path, tmp_path: Path) -> None:
    change, error, message = BROKEN_ARCHIVES[name]
    content = changed(trained, tmp_path, change)
    place = hostile.packed(content, tmp_path / "model.tar.gz")
    with pytest.raises(error, match="(?s)" + message.replace("{place}", str(place))):
        opened(place)


@pytest.mark.slow
def test_an_archive_that_is_cut_off_is_reported(trained: Path, tmp_path: Path) -> None:
    whole = (trained / "model.tar.gz").read_bytes()
    (tmp_path / "model.tar.gz").write_bytes(whole[:1000])
    with pytest.raises(BrokenArchive, match=r"^'.*model\.tar\.gz' cannot be read .* cut off"):
        opened(tmp_path / "model.tar.gz")


@pytest.mark.slow
@pytest.mark.parametrize("content", ["5", '"model_type"', "null"])
def test_configurations_that_are_no_json_objects_are_refused(
    content: str, trained: Path, tmp_path: Path
) -> None:
    place = changed(trained, tmp_path, hostile.with_text("config.json", content))
    with pytest.raises(UnsafeArchive, match=r"config\.json holds no JSON object"):
        opened(place)


def test_a_cache_folder_that_cannot_be_made_is_not_needed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user has no home folder, or a read-only one."""
    expected = opened(folder)
    (tmp_path / "file").touch()
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path / "file" / "cache"))
    encoder = opened(folder)
    assert np.array_equal(encoder(["ka lo"]), expected(["ka lo"]))
    assert encoder.describe() == expected.describe()
