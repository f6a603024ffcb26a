"""Pretrained transformers under AllenNLP: tokenizers, dtypes, re-initialization, checkpointing."""

import contextlib
import importlib
import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from allennlp.common import Params, cached_transformers
from allennlp.data import DatasetReader, Instance, TokenIndexer, Vocabulary
from allennlp.data.data_loaders.data_collator import DataCollator
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.modules.token_embedders import PretrainedTransformerEmbedder
from tokenizers import (
    Tokenizer,
    processors,
)

from declutr.bridge import pretrained
from tests.hostile_archives import with_json, with_remote_code

from .conftest import TEXTS, byte_level, roberta_post, unigram, wordpiece

IS_5 = int(transformers.__version__.split(".")[0]) >= 5


def template_post(cls: str, sep: str, tokenizer: Tokenizer) -> Any:
    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(name, tokenizer.token_to_id(name)) for name in (cls, sep)],
    )


BERT_NAMES = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]")
NAMES = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")

# (class, model type, maker, names of special tokens, special tokens around and between a pair)
FAMILIES: dict[str, tuple[str, Callable[[], Tokenizer], tuple[str, ...], int]] = {
    "bert": ("BertTokenizerFast", wordpiece, BERT_NAMES, 1),
    "distilbert": ("DistilBertTokenizerFast", wordpiece, BERT_NAMES, 1),
    "electra": ("ElectraTokenizerFast", wordpiece, BERT_NAMES, 1),
    "roberta": ("RobertaTokenizerFast", lambda: byte_level("<s>", "</s>", roberta_post), NAMES, 2),
    "albert": (
        "AlbertTokenizerFast",
        lambda: unigram("[CLS]", "[SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"),
        ("[CLS]", "[SEP]", "<pad>", "<unk>", "<mask>"),
        1,
    ),
    "xlm-roberta": (
        "XLMRobertaTokenizerFast",
        lambda: unigram("<s>", "</s>", "<s> $A </s> </s> $B </s>"),
        NAMES,
        2,
    ),
    "modernbert": (
        "PreTrainedTokenizerFast",
        lambda: byte_level("[CLS]", "[SEP]", template_post),
        ("[CLS]", "[SEP]", "<pad>", "<unk>", "<mask>"),
        1,
    ),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: Any, tmp_path_factory: Any) -> tuple[str, int]:
    """Return a folder with a tokenizer of one family, and its number of tokens between a pair."""
    name, make, (cls, sep, pad, unk, mask), between = FAMILIES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    make().save(str(folder / "tokenizer.json"))
    options = {
        "cls_token": cls,
        "sep_token": sep,
        "pad_token": pad,
        "unk_token": unk,
        "mask_token": mask,
        "bos_token": cls,
        "eos_token": sep,
        "tokenizer_class": name,
        "model_max_length": 64,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    model_type = request.param
    (folder / "config.json").write_text(json.dumps({"model_type": model_type, "vocab_size": 330}))
    return str(folder), between


def test_every_family_of_tokenizers(family: tuple[str, int]) -> None:
    folder, between = family
    tokenizer = PretrainedTransformerTokenizer(folder)
    assert tokenizer.tokenizer.is_fast
    starts, ends = tokenizer.single_sequence_start_tokens, tokenizer.single_sequence_end_tokens
    assert (len(starts), len(ends)) == (1, 1)
    assert len(tokenizer.sequence_pair_mid_tokens) == between
    assert starts[0].text_id == tokenizer.tokenizer.cls_token_id

    text = "the old house by the river"
    tokens = tokenizer.tokenize(text)
    assert tokens[0].text == tokenizer.tokenizer.cls_token
    assert tokens[-1].text == tokenizer.tokenizer.sep_token
    assert [t.text_id for t in tokens] == tokenizer.tokenizer(text)["input_ids"]
    assert text[tokens[1].idx : tokens[1].idx_end].strip() != ""

    assert len(PretrainedTransformerTokenizer(folder, max_length=4).tokenize(text)) == 4
    bare = PretrainedTransformerTokenizer(folder, add_special_tokens=False)
    assert [t.text_id for t in bare.tokenize(text)] == [t.text_id for t in tokens[1:-1]]


def test_transformers_without_weights_are_not_cached(bert: str) -> None:
    def weights(**settings: Any) -> torch.Tensor:
        return cached_transformers.get(bert, True, **settings).get_input_embeddings().weight

    cached_transformers._clear_caches()
    drawn = weights(load_weights=False)
    loaded = transformers.AutoModel.from_pretrained(bert, dtype=torch.float32)
    assert torch.equal(weights(), loaded.get_input_embeddings().weight)
    assert not torch.equal(weights(load_weights=False), drawn)
    assert len(cached_transformers._model_cache) == 1


def test_special_tokens_around_ids(family: tuple[str, int]) -> None:
    folder, between = family
    tokenizer = cached_transformers.get_tokenizer(folder)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    build = pretrained.build_inputs_with_special_tokens
    assert build(tokenizer, [7, 8, 9]) == [cls, 7, 8, 9, sep]
    assert build(tokenizer, []) == [cls, sep]
    assert build(tokenizer, [7, 8], [9]) == [cls, 7, 8, *[sep] * between, 9, sep]


def test_words_and_pairs(family: tuple[str, int]) -> None:
    tokenizer = PretrainedTransformerTokenizer(family[0])
    tokens, offsets = tokenizer.intra_word_tokenize(["old", "house"])
    assert len(offsets) == 2 and offsets[0] is not None and offsets[0][0] == 1
    tokens, first, second = tokenizer.intra_word_tokenize_sentence_pair(["old"], ["house"])
    assert first[0] is not None and second[0] is not None and second[0][0] > first[0][1]
    assert tokens[-1].text == tokenizer.tokenizer.sep_token


def test_encode_plus_is_needed(bert: str, monkeypatch: Any) -> None:
    module = importlib.import_module("allennlp.data.tokenizers.pretrained_transformer_tokenizer")
    base = transformers.PreTrainedTokenizerBase
    assert pretrained.tokenizer_methods(module) is False  # already done
    if not IS_5:
        assert base.encode_plus is not pretrained.encode_plus
        return
    assert base.encode_plus is pretrained.encode_plus
    cached_transformers._clear_caches()
    monkeypatch.delattr(base, "encode_plus")
    with pytest.raises(AttributeError, match="encode_plus"):
        PretrainedTransformerTokenizer(bert)
    assert pretrained.tokenizer_methods(module) is True
    PretrainedTransformerTokenizer(bert)


def test_adding_special_tokens_is_needed_for_folding(bert: str, monkeypatch: Any) -> None:
    module = importlib.import_module("allennlp.data.tokenizers.pretrained_transformer_tokenizer")
    name = "build_inputs_with_special_tokens"
    monkeypatch.delattr(transformers.PreTrainedTokenizerFast, name)
    with pytest.raises((AttributeError, AssertionError)):
        folded(bert)
    assert pretrained.tokenizer_methods(module) is True
    folded(bert)


def test_tokenizers_with_a_method_of_their_own_keep_it() -> None:
    own = transformers.PreTrainedTokenizer.build_inputs_with_special_tokens
    assert own is not pretrained.build_inputs_with_special_tokens


def test_a_pair_without_separator_is_refused(bert: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", 2)]
    )
    assert pretrained.build_inputs_with_special_tokens(tokenizer, [5]) == [2, 5]
    with pytest.raises(NotImplementedError, match="no special token between"):
        pretrained.build_inputs_with_special_tokens(tokenizer, [5], [6])


def test_the_argument_add_special_tokens_is_dropped(bert: str, bare: Any) -> None:
    plain = bare("allennlp.common.cached_transformers")
    with pytest.raises((AttributeError, TypeError, ValueError), match="add_special_tokens"):
        plain.get_tokenizer(bert, add_special_tokens=False)
    cured = cached_transformers.get_tokenizer(bert, add_special_tokens=False)
    assert cured is cached_transformers.get_tokenizer(bert)


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


def folded(bert: str) -> Instance:
    """Return a text of more than eight tokens, to be folded into segments of eight."""
    options = {"type": "pretrained_transformer", "model_name": bert, "max_length": 8}
    reader = DatasetReader.from_params(
        Params(
            {
                "type": "text_classification_json",
                "tokenizer": {"type": "pretrained_transformer", "model_name": bert},
                "token_indexers": {"tokens": options},
            }
        )
    )
    instance = reader.text_to_instance("the old house by the river was sold again")
    reader.apply_token_indexers(instance)
    instance.index_fields(Vocabulary())
    return instance


def test_long_inputs_are_folded(bert: str) -> None:
    instance = folded(bert)
    tensors = instance.as_tensor_dict()["tokens"]["tokens"]
    tokenizer = cached_transformers.get_tokenizer(bert)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    ids = tensors["token_ids"].tolist()
    segments = [ids[i : i + 8] for i in range(0, len(ids), 8)]
    assert len(segments) > 1
    assert all(segment[0] == cls and segment[-1] == sep for segment in segments)
    embedder = PretrainedTransformerEmbedder(bert, max_length=8).eval()
    out = embedder(**{name: tensor.unsqueeze(0) for name, tensor in tensors.items()})
    assert out.shape == (1, len(instance["tokens"].tokens), 16)


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
