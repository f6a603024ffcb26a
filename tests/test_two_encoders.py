"""A model of two encoders, where it is used."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules import TextFieldEmbedder

from declutr.export import ExportError, export_model
from declutr.inference.encoder import Encoder
from tests.conftest import run_config

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, corpus_file: Path) -> Path:
    config = run_config(checkpoint, corpus_file)
    config["model"]["two_encoders"] = True
    config["model"].pop("feedforward", None)
    folder = tmp_path_factory.mktemp("two") / "run"
    train_model(Params(config), str(folder))
    return folder


def test_embeddings_are_those_of_both(run: Path, documents: list[str]) -> None:
    encoder = Encoder(run, dtype="float32", normalize=False)
    rows = encoder(documents[:4])
    assert rows.shape == (4, 64) == (4, encoder.dimension)
    first, second = np.split(rows, 2, axis=1)
    assert not np.allclose(first, second, atol=1e-4)
    whole = Encoder(run / "model.tar.gz", dtype="float32", normalize=False)
    assert np.array_equal(whole(documents[:4]), rows)


def test_both_compute_in_int8(run: Path, documents: list[str]) -> None:
    exact = Encoder(run, dtype="float32", normalize=False)(documents[:4])
    rows = Encoder(run, dtype="int8", normalize=False)(documents[:4])
    for ours, theirs in zip(np.split(rows, 2, 1), np.split(exact, 2, 1), strict=True):
        assert not np.array_equal(ours, theirs)
        assert np.allclose(ours, theirs, atol=0.1)


def test_what_has_no_place_for_a_second(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="two encoders, whose embeddings are concatenated"):
        export_model(run, tmp_path / "exported", onnx=False)
    with pytest.raises(ConfigurationError, match=r"embeds by two encoders.*declutr.Encoder"):
        TextFieldEmbedder.from_params(Params({"type": "declutr", "archive": str(run)}))


def test_the_first_alone_embeds_and_can_be_exported(
    run: Path, documents: list[str], tmp_path: Path
) -> None:
    folder = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("model.tar.gz"))
    config = json.loads((folder / "config.json").read_text())
    config["model"]["embed_with_first"] = True
    (folder / "config.json").write_text(json.dumps(config))
    both = Encoder(run, dtype="float32", normalize=False)(documents[:4])
    encoder = Encoder(folder, dtype="float32", normalize=False)
    rows = encoder(documents[:4])
    assert rows.shape == (4, 32) == (4, encoder.dimension)
    assert np.allclose(rows, both[:, :32], atol=1e-6)
    exported = export_model(folder, tmp_path / "exported", onnx=False).folder
    again = Encoder(exported, dtype="float32", normalize=False)(documents[:4])
    assert np.allclose(again, rows, atol=1e-5)
    part = TextFieldEmbedder.from_params(Params({"type": "declutr", "archive": str(folder)}))
    assert part.get_output_dim() == 32
