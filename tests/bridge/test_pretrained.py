"""Pretrained transformers under AllenNLP: tokenizers, dtypes, re-initialization, checkpointing."""

import contextlib
import importlib
import inspect
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from allennlp.common import Params, cached_transformers
from allennlp.common.checks import ConfigurationError
from allennlp.data import Batch, Instance, TokenIndexer, Vocabulary
from allennlp.data.data_loaders.data_collator import DataCollator
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer, WhitespaceTokenizer
from allennlp.modules import TokenEmbedder
from allennlp.modules.token_embedders import PretrainedTransformerEmbedder

import declutr.plugin  # noqa: F401 - registers the names below
from declutr.bridge import pretrained
from tests.hostile_archives import with_json, with_remote_code

from .conftest import SPECIAL, TEXTS

IS_5 = int(transformers.__version__.split(".")[0]) >= 5


def test_the_argument_add_special_tokens_is_dropped(bert: str, bare: Any) -> None:
    plain = bare("allennlp.common.cached_transformers")
    with pytest.raises((AttributeError, TypeError, ValueError), match="add_special_tokens"):
        plain.get_tokenizer(bert, add_special_tokens=False)
    cured = cached_transformers.get_tokenizer(bert, add_special_tokens=False)
    assert cured is cached_transformers.get_tokenizer(bert)


def test_a_tilde_in_a_configuration_is_told(bert: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path(bert).parent))
    with pytest.raises(FileNotFoundError, match=f"begins with ~, .*Write '{re.escape(bert)}'"):
        cached_transformers.get_tokenizer(f"~/{Path(bert).name}")


@pytest.fixture
def half(bert: str, tmp_path: Path) -> str:
    """Return a folder with the tiny BERT, stored in half precision."""
    model = transformers.AutoModel.from_pretrained(bert).to(torch.float16)
    model.save_pretrained(tmp_path / "half")
    transformers.AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path / "half")
    return str(tmp_path / "half")


@pytest.mark.parametrize("load_weights", [True, False])
def test_half_precision_transformers_are_loaded_in_float32(
    half: str, load_weights: bool, bare: Any
) -> None:
    plain = bare("allennlp.common.cached_transformers")
    if IS_5 or not load_weights:
        assert plain.get(half, True, load_weights=load_weights).dtype == torch.float16
    assert cached_transformers.get(half, True, load_weights=load_weights).dtype == torch.float32


@pytest.mark.parametrize("argument", ["dtype", "torch_dtype"])
def test_a_dtype_that_is_asked_for_is_kept(half: str, argument: str) -> None:
    model = cached_transformers.AutoModel.from_pretrained(half, **{argument: torch.bfloat16})
    assert model.dtype == torch.bfloat16


def changed_layers(model: Any, reference: Any) -> list[int]:
    weights = [layer.attention.self.query.weight for layer in model.encoder.layer]
    olds = [layer.attention.self.query.weight for layer in reference.encoder.layer]
    return [i for i, (new, old) in enumerate(zip(weights, olds, strict=True)) if (new != old).any()]


def test_modules_are_reinitialized(bert: str, bare: Any) -> None:
    reference = cached_transformers.get(bert, True)
    again = cached_transformers.get(bert, True, reinit_modules=1)
    assert changed_layers(again, reference) == [1]
    if IS_5:
        plain = bare("allennlp.common.cached_transformers")
        assert changed_layers(plain.get(bert, True, reinit_modules=1), reference) == []


def checkpoints(embedder: Any) -> bool:
    """Return whether any layer recomputes its activations."""
    modules = embedder.transformer_model.modules()
    return any(getattr(module, "gradient_checkpointing", False) for module in modules)


def test_gradient_checkpointing_takes_effect(bert: str, bare: Any) -> None:
    name = "allennlp.modules.token_embedders.pretrained_transformer_embedder"
    plain = bare(name).PretrainedTransformerEmbedder
    assert not checkpoints(plain(bert, gradient_checkpointing=True))
    embedder = PretrainedTransformerEmbedder(bert, gradient_checkpointing=True)
    reference = PretrainedTransformerEmbedder(bert)
    assert checkpoints(embedder) and not checkpoints(reference)
    assert inspect.signature(PretrainedTransformerEmbedder) == inspect.signature(plain)

    ids, mask = torch.tensor([[2, 7, 8, 3]]), torch.ones(1, 4, dtype=torch.bool)
    gradients = []
    for module in (embedder, reference):
        module.train()
        torch.manual_seed(0)
        module(ids, mask).square().sum().backward()
        weight = module.transformer_model.encoder.layer[0].attention.self.query.weight
        gradients.append(weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


def masked(bert: str, probability: float) -> torch.Tensor:
    collator = DataCollator.from_params(
        Params({"type": "language_model", "model_name": bert, "mlm_probability": probability})
    )
    indexer = TokenIndexer.from_params(
        Params({"type": "pretrained_transformer", "model_name": bert})
    )
    tokenizer = PretrainedTransformerTokenizer(bert)
    instance = Instance({"source": TextField(tokenizer.tokenize(TEXTS[0]), {"tokens": indexer})})
    instance.index_fields(Vocabulary())
    return collator([instance])["source"]["tokens"]["labels"]


def test_the_masking_probability_reaches_the_collator(bert: str, bare: Any) -> None:
    name = "allennlp.data.data_loaders.data_collator"
    plain = bare(name)
    if pretrained.collator_arguments(bare(name)):
        # Without the repair it becomes `whole_word_mask`: it is lost, or this tokenizer is refused.
        with contextlib.suppress(TypeError):
            lost = plain.LanguageModelingDataCollator(bert, mlm_probability=0.9)._collator
            assert lost.mlm_probability == 0.15
    cured = importlib.import_module(name).LanguageModelingDataCollator
    assert cured(bert, mlm_probability=0.9)._collator.mlm_probability == 0.9
    labels = masked(bert, probability=1.0)
    assert (labels[0, 1:-1] != -100).all()
    assert (masked(bert, probability=0.01) == -100).any()


@pytest.mark.parametrize("load_weights", [True, False])
def test_remote_code_is_refused_without_a_question(
    load_weights: bool, checkpoint: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """Without the repair transformers would ask on standard input, which may be a pipe of texts."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    modules = str(tmp_path / "modules")
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", modules)
    place = tmp_path / "model"
    shutil.copytree(checkpoint, place)
    with_remote_code(tmp_path / "marker")(place)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        cached_transformers.get(str(place), False, load_weights=load_weights)
    with_json("tokenizer_config.json", auto_map={"AutoTokenizer": ["theirs.Slow", None]})(place)
    config = {"tokenizer_class": "Slow"}
    with_json("tokenizer_config.json", **config)(place)
    with contextlib.suppress(ValueError):  # 5 takes tokenizer.json as it is
        cached_transformers.get_tokenizer(str(place))
    assert not (tmp_path / "marker").exists()
    model = cached_transformers.get(
        str(place), False, load_weights=load_weights, trust_remote_code=True
    )
    assert type(model).__name__ == "Model" and (tmp_path / "marker").exists()


@pytest.mark.parametrize("max_length", [4, 8])
def test_empty_texts_keep_their_special_tokens(max_length: int, bert: str, bare: Any) -> None:
    """Beside a long text, which is cut into pieces, too."""
    indexing = bare("allennlp.data.token_indexers.pretrained_transformer_indexer")
    embedding = bare("allennlp.modules.token_embedders.pretrained_transformer_embedder")
    tokenizer = PretrainedTransformerTokenizer(bert)

    def embedded(texts: list[str], length: int | None) -> torch.Tensor:
        indexer = indexing.PretrainedTransformerIndexer(bert, max_length=length)
        fields = [TextField(tokenizer.tokenize(text), {"tokens": indexer}) for text in texts]
        batch = Batch([Instance({"text": field}) for field in fields])
        batch.index_instances(Vocabulary())
        embedder = embedding.PretrainedTransformerEmbedder(bert, max_length=length).eval()
        return embedder(**batch.as_tensor_dict()["text"]["tokens"])

    expected = embedded([""], None)
    assert not torch.allclose(embedded(["she", ""], max_length)[1, :2], expected, atol=1e-4)
    pretrained.empty_texts(indexing)
    with pytest.raises(AssertionError):
        embedded([TEXTS[0], ""], max_length)
    pretrained.empty_beside_long(embedding)
    for others in ([], ["she"], [TEXTS[0]], [TEXTS[0], "", TEXTS[1]]):
        whole = embedded([*others, ""], max_length)
        torch.testing.assert_close(whole[-1:, :2], expected)
        for row, text in enumerate(others):
            alone = embedded([text], max_length)[0]
            torch.testing.assert_close(whole[row, : len(alone)], alone)


@pytest.mark.parametrize("kind", ["pretrained_transformer_mismatched", "ours"])
@pytest.mark.parametrize(
    ("of_indexer", "of_embedder"), [(None, 8), (8, None), (8, 16), (16, 8), (8, 8), (None, None)]
)
def test_pieces_of_another_length_are_refused(
    of_indexer: int | None, of_embedder: int | None, kind: str, bert: str
) -> None:
    """Offsets of words would lead to other tokens: texts have several pieces of 6 words."""
    apart = kind != "ours"
    tokenizer = WhitespaceTokenizer() if apart else PretrainedTransformerTokenizer(bert)
    name = kind if apart else "pretrained_transformer"
    indexer = TokenIndexer.by_name(name)(bert, max_length=of_indexer)
    embedder = TokenEmbedder.by_name(kind if apart else "pretrained_transformer_mlm")(
        bert, max_length=of_embedder
    ).eval()
    fields = [
        TextField(tokenizer.tokenize(text), {"tokens": indexer}) for text in ("a b", "a " * 9)
    ]
    batch = Batch([Instance({"text": field}) for field in fields])
    batch.index_instances(Vocabulary())
    tensors = batch.as_tensor_dict()["text"]["tokens"]
    if of_indexer == of_embedder:
        assert embedder(**tensors).shape[:2] == tensors["mask"].shape
        further = {name: torch.nn.functional.pad(t, (0, 9)) for name, t in tensors.items()}
        if not apart:  # as `token_min_padding_length` pads texts
            assert embedder(**further).size(0) == 2
        return
    with pytest.raises(ConfigurationError, match=r"Set the same one in both, or in neither"):
        embedder(**tensors)


def test_ids_of_another_tokenizer_are_told(
    bert: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """AllenNLP takes them for those of its own vocabulary, and embeds other words."""
    other = shutil.copytree(bert, tmp_path / "other")
    words = (other / "tokenizer.json").read_text()
    vocabulary = json.loads(words)
    ids = vocabulary["model"]["vocab"]
    pieces = [word for word in ids if word not in SPECIAL]
    shifted = dict(zip(pieces, [ids[word] for word in [*pieces[1:], pieces[0]]], strict=True))
    vocabulary["model"]["vocab"] = ids | shifted
    (other / "tokenizer.json").write_text(json.dumps(vocabulary))
    (other / "vocab.txt").unlink(missing_ok=True)
    tokens = PretrainedTransformerTokenizer(bert).tokenize(TEXTS[0])
    for model, told in ((bert, 0), (str(other), 1)):
        indexer = PretrainedTransformerIndexer(model)
        caplog.clear()
        for _ in range(3):
            found = indexer.tokens_to_indices(tokens, Vocabulary())["token_ids"]
        assert found == [token.text_id for token in tokens]
        assert len([r for r in caplog.records if "of another transformer" in r.message]) == told
