"""Readers, embedders and encoders have the same maximal length of a text in all families."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from transformers import AutoConfig, AutoModel, AutoTokenizer

import declutr.plugin  # noqa: F401 - registers what configurations name
from declutr.data.tokenizers import max_tokens
from declutr.inference.encoder import Encoder
from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.transformer.architectures import (
    configured_max_positions,
    first_position,
    longest_text,
    max_positions,
)
from tests.conftest import run_config
from tests.families import COUNTING_FROM_PADDING, FAMILIES, MAX_LENGTH, build
from tests.hostile_archives import with_json

SHIFTED = {*COUNTING_FROM_PADDING, "roberta", "xlm-roberta"}


@pytest.fixture(scope="module", params=[*FAMILIES, *COUNTING_FROM_PADDING])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a pretrained transformer whose tokenizer has no limit."""
    place = build(family, tmp_path_factory.mktemp(family))
    with_json("tokenizer_config.json", model_max_length=int(1e30))(place)
    return place


def test_reader_embedder_and_encoder_have_the_same_limit(family: str, folder: Path) -> None:
    model = AutoModel.from_pretrained(folder)
    assert first_position(model) == (model.config.pad_token_id + 1 if family in SHIFTED else 0)
    assert max_positions(model) == configured_max_positions(model.config) == MAX_LENGTH
    assert longest_text(AutoTokenizer.from_pretrained(folder), MAX_LENGTH) == MAX_LENGTH
    assert max_tokens(PretrainedTransformerTokenizer(str(folder))) == MAX_LENGTH
    assert PretrainedTransformerEmbedderMLM(str(folder)).max_positions() == MAX_LENGTH


def test_the_longest_text_fits_and_a_longer_one_does_not(family: str, folder: Path) -> None:
    embedder = PretrainedTransformerEmbedderMLM(str(folder)).eval()
    ids = torch.full((1, MAX_LENGTH + 1), 7)
    assert embedder(ids[:, 1:], torch.ones(1, MAX_LENGTH, dtype=torch.bool)).isfinite().all()
    with pytest.raises(ConfigurationError, match=f"text of {MAX_LENGTH + 1} tokens.*{MAX_LENGTH}"):
        embedder(ids, torch.ones_like(ids, dtype=torch.bool))
    if family in SHIFTED:  # a longer one would have no positions
        with pytest.raises((IndexError, RuntimeError)):
            AutoModel.from_pretrained(folder)(ids)


def test_long_texts_are_cut(folder: Path) -> None:
    encoder = Encoder(folder, device="cpu")
    assert np.isfinite(encoder(["the old house by the river " * 40])).all()
    assert encoder.truncated_texts == 1


def test_long_texts_are_embedded_in_bfloat16(folder: Path) -> None:
    """The adapters of X-MOD work in bfloat16 too."""
    embedder = PretrainedTransformerEmbedderMLM(str(folder)).eval()
    ids = torch.arange(5, 25).view(2, 10)
    mask = torch.ones_like(ids, dtype=torch.bool)
    with torch.no_grad():
        expected = embedder(ids, mask)
        with torch.autocast("cpu", torch.bfloat16):
            vectors = embedder(ids, mask)
    assert torch.allclose(vectors.float(), expected, rtol=0.1, atol=0.1)


def test_the_adapters_of_xmod_are_trained_in_bfloat16(tmp_path: Path) -> None:
    embedder = PretrainedTransformerEmbedderMLM(str(build("xmod", tmp_path))).train()
    ids = torch.arange(5, 25).view(2, 10)
    with torch.autocast("cpu", torch.bfloat16):
        embedder(ids, torch.ones_like(ids, dtype=torch.bool)).float().pow(2).sum().backward()
    adapters = [p for name, p in embedder.named_parameters() if "adapter_modules.en_XX" in name]
    assert adapters and all(p.grad is not None and p.grad.abs().sum() > 0 for p in adapters)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["luke", "roberta-prelayernorm", "xmod"])
def test_an_archive_cuts_long_texts(family: str, corpus_file: Path, tmp_path: Path) -> None:
    """The reader and the embedder of a model that was trained, in bfloat16, agree."""
    place = build(family, tmp_path / "transformer")
    with_json("tokenizer_config.json", model_max_length=int(1e30))(place)
    config = run_config(place, corpus_file)
    config["model"]["precision"] = "bfloat16"
    config["model"]["feedforward"]["input_dim"] = 16
    embedder = config["model"]["text_field_embedder"]["token_embedders"]["tokens"]
    embedder["masked_language_modeling"] = family != "luke"  # its head needs entities
    train_model(Params(config), str(tmp_path / "run"))
    encoder = Encoder(tmp_path / "run", device="cpu")
    assert encoder.max_length == MAX_LENGTH
    assert np.isfinite(encoder(["the old house by the river " * 40])).all()
    assert encoder.truncated_texts == 1


class Tokenizer:
    def __init__(self, limit: float) -> None:
        self.model_max_length = limit


@pytest.mark.parametrize(
    ("named", "positions", "expected"),
    [(512, 128, 128), (128, 512, 128), (1e30, 128, 128), (128, None, 128), (1e30, None, None)],
)
def test_the_lower_limit_is_used(named: float, positions: int | None, expected: Any) -> None:
    assert longest_text(Tokenizer(named), positions) == expected


def test_relative_positions_are_no_limit(tmp_path: Path) -> None:
    place = build("bert", tmp_path)
    model = AutoModel.from_pretrained(place)
    model.config.max_position_embeddings = -1
    assert max_positions(model) is None and configured_max_positions(model.config) is None


def test_a_configuration_that_cannot_be_built_has_its_table_size(tmp_path: Path) -> None:
    """Code that needs the transformer reports the error; the table size limits a tokenizer."""
    place = build("roberta", tmp_path)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "hidden_act": "none such"}))
    assert configured_max_positions(AutoConfig.from_pretrained(place)) == MAX_LENGTH + 2


def test_no_random_number_is_drawn(tmp_path: Path) -> None:
    config = AutoConfig.from_pretrained(build("roberta", tmp_path))
    before = torch.get_rng_state()
    assert configured_max_positions(config) == MAX_LENGTH
    assert torch.equal(torch.get_rng_state(), before)
