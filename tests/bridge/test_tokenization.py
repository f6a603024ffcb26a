"""Methods of tokenizers that transformers 5 removed work as they did, for every family.

Also, spaCy's tokenizers leave each other alone, and vocabularies have the order of tokenizers.
"""

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from allennlp.common import Params, cached_transformers
from allennlp.data import DatasetReader, Instance, Vocabulary
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.modules.token_embedders import PretrainedTransformerEmbedder
from tokenizers import Tokenizer, processors

from declutr.bridge import tokenization

from .conftest import byte_level, roberta_post, unigram, wordpiece

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


def test_special_tokens_around_ids(family: tuple[str, int]) -> None:
    folder, between = family
    tokenizer = cached_transformers.get_tokenizer(folder)
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    build = tokenization.build_inputs_with_special_tokens
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


def test_encode_plus_is_needed(bert: str, monkeypatch: Any) -> None:
    module = importlib.import_module("allennlp.data.tokenizers.pretrained_transformer_tokenizer")
    base = transformers.PreTrainedTokenizerBase
    assert tokenization.tokenizer_methods(module) is False  # already done
    if not IS_5:
        assert base.encode_plus is not tokenization.encode_plus
        return
    assert base.encode_plus is tokenization.encode_plus
    cached_transformers._clear_caches()
    monkeypatch.delattr(base, "encode_plus")
    with pytest.raises(AttributeError, match="encode_plus"):
        PretrainedTransformerTokenizer(bert)
    assert tokenization.tokenizer_methods(module) is True
    PretrainedTransformerTokenizer(bert)


def test_adding_special_tokens_is_needed_for_folding(bert: str, monkeypatch: Any) -> None:
    module = importlib.import_module("allennlp.data.tokenizers.pretrained_transformer_tokenizer")
    name = "build_inputs_with_special_tokens"
    monkeypatch.delattr(transformers.PreTrainedTokenizerFast, name)
    with pytest.raises((AttributeError, AssertionError)):
        folded(bert)
    assert tokenization.tokenizer_methods(module) is True
    folded(bert)


def test_tokenizers_with_a_method_of_their_own_keep_it() -> None:
    own = transformers.PreTrainedTokenizer.build_inputs_with_special_tokens
    assert own is not tokenization.build_inputs_with_special_tokens


def test_a_pair_without_separator_is_refused(bert: str) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A $B", special_tokens=[("[CLS]", 2)]
    )
    assert tokenization.build_inputs_with_special_tokens(tokenizer, [5]) == [2, 5]
    with pytest.raises(NotImplementedError, match="no special token between"):
        tokenization.build_inputs_with_special_tokens(tokenizer, [5], [6])


@pytest.fixture
def bert_tokenizer(bert: str) -> Any:
    """Return a fast BERT tokenizer, with its own class."""
    return transformers.BertTokenizerFast(tokenizer_file=f"{bert}/tokenizer.json")


@pytest.mark.parametrize("words", [False, True])
def test_batches_of_texts_and_of_pairs(bert_tokenizer: Any, words: bool) -> None:
    texts = [["she", "plays"], ["the", "old", "house"]] if words else ["she plays", "the old house"]
    pairs = [(texts[0], texts[1]), [texts[1], texts[0]]]
    options = {"is_split_into_words": words, "padding": True, "return_tensors": "pt"}
    encoded = bert_tokenizer.batch_encode_plus(texts, **options)
    expected = bert_tokenizer(texts, **options)
    assert encoded["input_ids"].tolist() == expected["input_ids"].tolist()
    assert encoded["attention_mask"].tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    encoded = bert_tokenizer.batch_encode_plus(pairs, True, **options)
    one = bert_tokenizer(*pairs[1], is_split_into_words=words)
    assert encoded["input_ids"][1].tolist() == one["input_ids"]
    assert encoded["token_type_ids"].tolist() == [
        [0, 0, 0, 0, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 1, 1, 1],
    ]
    bare = bert_tokenizer.batch_encode_plus(texts, False, is_split_into_words=words)
    assert bare["input_ids"][0] == bert_tokenizer.convert_tokens_to_ids(["she", "plays"])


def test_ids_are_prepared_as_by_earlier_releases(bert_tokenizer: Any) -> None:
    """The expected values are those of transformers 4.57, which runs this test too."""
    prepare = bert_tokenizer.prepare_for_model
    cls, sep = bert_tokenizer.cls_token_id, bert_tokenizer.sep_token_id
    assert dict(prepare([7, 8])) == {
        "input_ids": [cls, 7, 8, sep],
        "token_type_ids": [0, 0, 0, 0],
        "attention_mask": [1, 1, 1, 1],
    }
    padded = prepare([7, 8], [9], padding="max_length", max_length=8, return_length=True)
    assert dict(padded) == {
        "input_ids": [cls, 7, 8, sep, 9, sep, 0, 0],
        "token_type_ids": [0, 0, 0, 0, 1, 1, 0, 0],
        "attention_mask": [1, 1, 1, 1, 1, 1, 0, 0],
        "length": 8,
    }
    cut = prepare(
        [5, 6, 7, 8],
        [9, 10],
        truncation="only_first",
        max_length=7,
        stride=1,
        return_overflowing_tokens=True,
    )
    assert dict(cut) == {
        "overflowing_tokens": [6, 7, 8],
        "num_truncated_tokens": 2,
        "input_ids": [cls, 5, 6, sep, 9, 10, sep],
        "token_type_ids": [0, 0, 0, 0, 1, 1, 1],
        "attention_mask": [1] * 7,
    }
    whole = prepare([5], truncation=True, max_length=7, return_overflowing_tokens=True)
    assert (whole["overflowing_tokens"], whole["num_truncated_tokens"]) == ([], -4)
    assert prepare([5, 6, 7], [8], truncation=True, max_length=5)["input_ids"] == [
        cls,
        5,
        sep,
        8,
        sep,
    ]
    assert dict(prepare([5], [6], add_special_tokens=False, return_attention_mask=False)) == {
        "input_ids": [5, 6],
        "token_type_ids": [0, 0],
    }
    as_tensors = prepare([5], return_tensors="pt", prepend_batch_axis=True)
    assert as_tensors["input_ids"].tolist() == [[cls, 5, sep]]


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    """Return the folder of a spaCy pipeline that tags two words."""
    spacy = pytest.importorskip("spacy")
    language = spacy.blank("en")
    patterns = [[{"LOWER": "cats"}], [{"LOWER": "don't"}]]
    tags = ({"TAG": "NNS", "POS": "NOUN"}, {"TAG": "VB", "POS": "VERB"})
    language.add_pipe("attribute_ruler").add_patterns(
        [{"patterns": [p], "attrs": attrs} for p, attrs in zip(patterns, tags, strict=True)]
    )
    language.to_disk(tmp_path / "pipeline")
    return str(tmp_path / "pipeline")


SPACY = "allennlp.data.tokenizers.spacy_tokenizer"


def test_tokenizers_of_one_pipeline_split_as_each_is_told(pipeline: str, bare: Any) -> None:
    def split(module: Any, folder: str) -> list[list[str]]:
        tokenizers = [module.SpacyTokenizer(folder)]
        tokenizers += [module.SpacyTokenizer(folder, split_on_spaces=True)]
        tokenizers += [module.SpacyTokenizer(folder)]
        return [[t.text for t in each.tokenize("Cats don't.")] for each in tokenizers]

    by_spaces, by_rules = ["Cats", "don't."], ["Cats", "do", "n't", "."]
    module = bare(SPACY)
    assert split(module, shutil.copytree(pipeline, f"{pipeline} 2")) == [by_spaces] * 3
    tokenization.own_pipelines(module)
    assert split(module, pipeline) == [by_rules, by_spaces, by_rules]
    one, other = module.SpacyTokenizer(pipeline), module.SpacyTokenizer(pipeline)
    assert one.spacy.vocab is other.spacy.vocab  # the model is loaded once


@pytest.mark.slow
def test_a_pipeline_of_its_own_tags_and_reads_batches(pipeline: str) -> None:
    tokenizer = importlib.import_module(SPACY).SpacyTokenizer(pipeline, split_on_spaces=True)
    importlib.import_module(SPACY).SpacyTokenizer(pipeline)
    expected = [[("cats", "NOUN"), ("don't", "VERB")], [("a", ""), ("cats.", "")]]
    for batch in (tokenizer.batch_tokenize, lambda texts: map(tokenizer.tokenize, texts)):
        found = [[(t.text, t.pos_) for t in row] for row in batch(["cats don't", "a cats."])]
        assert found == expected


def test_a_vocabulary_numbers_tokens_by_their_ids(bert: str, bare: Any) -> None:
    """The order of a tokenizer's vocabulary is another in every process."""
    module = bare("allennlp.data.vocabulary")
    tokenizer = cached_transformers.get_tokenizer(bert)
    by_id = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))

    def numbered() -> list[str]:
        vocab = module.Vocabulary.from_pretrained_transformer_and_instances([], {"tags": bert})
        return list(vocab.get_token_to_index_vocabulary("tags"))

    assert sorted(numbered()) == sorted(by_id) and numbered() != by_id
    tokenization.numbered_as_by_the_tokenizer(module)
    assert numbered() == by_id
    vocab = module.Vocabulary()
    held = vocab.get_index_to_token_vocabulary("tags")
    vocab.add_transformer_vocab(tokenizer, "tags")
    assert list(held.items()) == list(enumerate(by_id))
