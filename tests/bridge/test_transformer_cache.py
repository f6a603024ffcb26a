"""Pretrained transformers and tokenizers come out of the cache as they were asked for."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from allennlp.common import cached_transformers
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.modules.token_embedders import PretrainedTransformerEmbedder

NAME = "allennlp.common.cached_transformers"


@pytest.fixture(autouse=True)
def _empty_caches() -> None:
    cached_transformers._clear_caches()


def test_transformers_without_weights_are_not_cached(bert: str) -> None:
    def weights(**settings: Any) -> torch.Tensor:
        return cached_transformers.get(bert, True, **settings).get_input_embeddings().weight

    drawn = weights(load_weights=False)
    loaded = transformers.AutoModel.from_pretrained(bert, dtype=torch.float32)
    assert torch.equal(weights(), loaded.get_input_embeddings().weight)
    assert not torch.equal(weights(load_weights=False), drawn)
    assert len(cached_transformers._model_cache) == 1


@pytest.mark.parametrize("positional", [False, True])
def test_layers_that_begin_anew_are_drawn_for_each(bert: str, positional: bool) -> None:
    def query() -> torch.Tensor:
        given = (None, None, 1) if positional else ()
        model = cached_transformers.get(
            bert, True, *given, **{} if given else {"reinit_modules": 1}
        )
        return model.encoder.layer[1].attention.self.query.weight

    assert not torch.equal(query(), query())
    assert not cached_transformers._model_cache


def test_options_of_a_transformer_take_effect(bert: str, bare: Any) -> None:
    def dropout(module: Any, **options: Any) -> float:
        return module.get(bert, False, **options).config.hidden_dropout_prob

    plain = bare(NAME)
    assert dropout(plain) == 0.1 and dropout(plain, hidden_dropout_prob=0.3) == 0.1
    assert dropout(cached_transformers) == 0.1
    assert dropout(cached_transformers, hidden_dropout_prob=0.3) == 0.3
    assert dropout(cached_transformers) == 0.1
    options = {"hidden_dropout_prob": 0.5}
    embedder = PretrainedTransformerEmbedder(bert, transformer_kwargs=options)
    assert embedder.config.hidden_dropout_prob == 0.5


def test_the_same_is_read_once(bert: str) -> None:
    options = {"attn_implementation": "eager", "output_attentions": True}
    first = cached_transformers.get(bert, False, **options)
    assert cached_transformers.get(bert, False, **options) is first
    copy = cached_transformers.get(bert, True, **options)
    assert copy is not first and copy.config.output_attentions
    tokenizers = [PretrainedTransformerTokenizer(bert).tokenizer for _ in range(2)]
    assert tokenizers[0] is tokenizers[1]


def test_changed_files_are_read_again(bert: str, tmp_path: Path, bare: Any) -> None:
    """The tokenizer is asked for as AllenNLP does, with an argument that another switch drops."""
    folder = str(shutil.copytree(bert, tmp_path / "bert"))

    def change() -> None:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        tokenizer.add_tokens([f"word{len(tokenizer)}"])
        tokenizer.save_pretrained(folder)
        model = transformers.AutoModel.from_pretrained(folder)
        torch.nn.init.ones_(model.get_input_embeddings().weight)
        model.save_pretrained(folder)

    plain = bare(NAME)
    tokenizer, model = plain.get_tokenizer(folder), plain.get(folder, False)
    words = len(PretrainedTransformerTokenizer(folder).tokenizer)
    before = cached_transformers.get(folder, False)
    change()
    assert plain.get_tokenizer(folder) is tokenizer and plain.get(folder, False) is model
    assert len(PretrainedTransformerTokenizer(folder).tokenizer) == words + 1
    assert cached_transformers.get(folder, False) is not before
    assert (cached_transformers.get(folder, False).get_input_embeddings().weight == 1).all()


def test_changed_weights_of_another_file_are_read_again(bert: str, tmp_path: Path) -> None:
    file = tmp_path / "weights.th"

    def words() -> torch.Tensor:
        model = cached_transformers.get(bert, True, override_weights_file=str(file))
        return model.get_input_embeddings().weight

    state = transformers.AutoModel.from_pretrained(bert, dtype=torch.float32).state_dict()
    for number in (1.0, 2.0, 3.0):
        state["embeddings.word_embeddings.weight"].fill_(number)
        torch.save(state, tmp_path / "other.th")
        if number == 3.0:  # as `cp -p` and `rsync -t` keep times
            shutil.copystat(file, tmp_path / "other.th")
        (tmp_path / "other.th").replace(file)
        assert (words() == number).all()


def test_what_was_read_from_a_folder_that_is_gone_is_dropped(
    bert: str, tmp_path: Path, bare: Any
) -> None:
    """As by opening archives again and again, each time in a new folder."""

    def open_and_remove(module: Any) -> None:
        for number in range(3):
            folder = str(shutil.copytree(bert, tmp_path / f"extracted{number}"))
            module.get_tokenizer(folder)
            module.get(folder, False)
            shutil.rmtree(folder)

    plain = bare(NAME)
    open_and_remove(plain)
    assert len(plain._tokenizer_cache) == len(plain._model_cache) == 3
    kept = PretrainedTransformerTokenizer(bert).tokenizer, cached_transformers.get(bert, False)
    open_and_remove(cached_transformers)
    again = PretrainedTransformerTokenizer(bert).tokenizer, cached_transformers.get(bert, False)
    assert all(one is other for one, other in zip(kept, again, strict=True))
    assert len(cached_transformers._tokenizer_cache) == len(cached_transformers._model_cache) == 1
