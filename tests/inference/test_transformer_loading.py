"""Tests of which part of a transformer is opened, and of what must be stored for it."""

import copy
import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from allennlp.common import cached_transformers
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    BartModel,
    DPRQuestionEncoder,
    FSMTModel,
    OPTModel,
    T5EncoderModel,
)

from declutr.inference.encoder import Encoder
from declutr.inference.open_text_model import EncoderError
from declutr.modules.classification_pooler import ClassificationPooler
from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.modules.transformer_embedder import load_transformer
from tests.conftest import as_sentence_transformers
from tests.families import (
    TEXTS,
    build_bart,
    build_dpr,
    build_fsmt,
    build_gpt2,
    build_mamba,
    build_opt,
    build_t5,
)
from tests.hostile_archives import with_json


def opened(place: Path) -> Encoder:
    return Encoder(place, device="cpu", dtype="float32")


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("model", ["T5Model", "T5EncoderModel"])
def test_an_encoder_needs_no_decoder(tmp_path: Path, model: str, listed: bool) -> None:
    """Public models of sentence-transformers store that of T5 alone (sentence-t5, gtr-t5)."""
    place = build_t5(tmp_path, model)
    if listed:
        as_sentence_transformers(place, 16)
    encoder = T5EncoderModel.from_pretrained(place).eval()
    assert np.allclose(opened(place)(TEXTS), _means(place, encoder), atol=1e-6)
    if model == "T5EncoderModel":  # its configuration may say either, depending on the release
        with_json("config.json", is_encoder_decoder=True)(place)
        assert np.allclose(opened(place)(TEXTS), _means(place, encoder), atol=1e-6)
        state = load_file(place / "model.safetensors")
        state.pop("encoder.block.0.layer.0.SelfAttention.k.weight")
        save_file(state, place / "model.safetensors", {"format": "pt"})
        with pytest.raises(EncoderError, match=r"lacks 1 weights .* 'encoder.block.0.layer.0.Self"):
            opened(place)


def test_bart_is_whole_in_a_folder_of_sentence_transformers(tmp_path: Path) -> None:
    """That package, and training, take the states of its decoder; for others it is an encoder."""
    whole = BartModel.from_pretrained(build_bart(tmp_path)).eval()
    alone = opened(tmp_path)(TEXTS)
    assert np.allclose(alone, _means(tmp_path, whole.get_encoder()), atol=1e-6)
    found = opened(as_sentence_transformers(tmp_path, 16))(TEXTS)
    assert np.allclose(found, _means(tmp_path, whole), atol=1e-6)
    assert np.abs(found - alone).max() > 0.1


def test_embeddings_may_be_narrower_than_layers(tmp_path: Path) -> None:
    encoder = opened(build_opt(tmp_path))
    assert encoder.dimension == 8
    plain = OPTModel.from_pretrained(tmp_path).eval()
    assert np.allclose(encoder(TEXTS), _means(tmp_path, plain), atol=1e-6)
    embedder = PretrainedTransformerEmbedderMLM(str(tmp_path), masked_language_modeling=False)
    assert embedder.get_output_dim() == 8


def test_parts_that_give_token_embeddings(tmp_path: Path) -> None:
    """The encoder of FSMT is no model of its own, and DPR gives the embeddings of its BERT."""
    found = opened(build_fsmt(tmp_path / "fsmt"))(TEXTS)
    translator = FSMTModel.from_pretrained(tmp_path / "fsmt").eval()
    assert np.allclose(found, _means(tmp_path / "fsmt", translator.get_encoder()), atol=1e-6)
    place = build_dpr(tmp_path / "dpr")
    questions = DPRQuestionEncoder.from_pretrained(place).eval()
    part = questions.question_encoder.bert_model
    assert np.allclose(opened(place)(TEXTS), _means(place, part), atol=1e-6)
    first = Encoder(place, device="cpu", dtype="float32", pooling="cls")(TEXTS[:1])
    tokens = AutoTokenizer.from_pretrained(place)(TEXTS[0], return_tensors="pt")
    assert np.allclose(first, questions(**tokens).pooler_output.detach(), atol=1e-6)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(
            build_mamba,
            marks=pytest.mark.skipif(
                transformers.__version__.startswith("4."), reason="it can compute in int8 there"
            ),
        ),
        build_gpt2,
    ],
)
def test_int8_of_models_that_cannot(
    build: Callable[[Path], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They compute in float32, and say so."""
    place = build(tmp_path)
    encoder = Encoder(place, device="cpu", dtype="int8")
    assert "computes in float32, not in int8" in caplog.text
    assert encoder.describe()["dtype"] == "float32"
    assert np.allclose(encoder(TEXTS), opened(place)(TEXTS), atol=1e-6)


def test_an_encoder_of_two_layers_can_be_pickled(tmp_path: Path) -> None:
    """Where transformers 5 has hooked functions into it."""
    encoder = Encoder(build_bart(tmp_path), device="cpu", dtype="float32", pooling="first-last")
    expected = encoder(TEXTS)
    state = encoder._model.__getstate__()["transformer"].state_dict()
    for name, tensor in encoder._model.transformer.state_dict().items():  # type: ignore[attr-defined]
        assert state[name].data_ptr() == tensor.data_ptr()
    for other in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder), encoder):
        assert np.allclose(other(TEXTS), expected, atol=1e-7)


def _means(place: Path, model: Any) -> np.ndarray:
    tokenizer = AutoTokenizer.from_pretrained(place)
    rows = []
    for text in TEXTS:
        encoded = tokenizer(text, return_tensors="pt")
        inputs = encoded["input_ids"], encoded["attention_mask"]
        with torch.no_grad():
            rows.append(model(*inputs).last_hidden_state[0].mean(dim=0).numpy())
    return np.stack(rows)


def test_one_thread_after_another_loads_a_transformer(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers replaces `tie_weights` for all threads meanwhile, and two never put it back."""
    place, inside, most = str(checkpoint), [0], [0]
    load = transformers.PreTrainedModel.from_pretrained.__func__  # type: ignore[attr-defined]

    def slowly(cls: type, *args: Any, **kwargs: Any) -> Any:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        try:
            return load(cls, *args, **kwargs)
        finally:
            inside[0] -= 1

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", classmethod(slowly))
    tie_weights = transformers.PreTrainedModel.tie_weights
    with ThreadPoolExecutor() as threads:
        loading = [
            threads.submit(opened, checkpoint),
            threads.submit(load_transformer, place, True, True, {}),
            threads.submit(cached_transformers.get, place, False),
            threads.submit(ClassificationPooler, place, True),
            threads.submit(opened, checkpoint),
        ]
    assert all(each.result() for each in loading) and most == [1]
    assert transformers.PreTrainedModel.tie_weights is tie_weights
