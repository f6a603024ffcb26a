"""The stand-in hub: what its names give to AllenNLP, offline."""

from pathlib import Path

import pytest
import torch
from allennlp.data import Batch, Instance, Vocabulary
from allennlp.data.fields import TextField
from allennlp.data.token_indexers import PretrainedTransformerIndexer
from allennlp.data.tokenizers import PretrainedTransformerTokenizer
from allennlp.modules.token_embedders import PretrainedTransformerEmbedder

from tests.stand_in_hub import make_hub, words_of

EXPECTED = {
    "epwalsh/bert-xsmall-dummy": ("[CLS]", "[SEP]", 20),
    "roberta-base": ("<s>", "</s>", 24),
    "albert-base-v2": ("[CLS]", "[SEP]", 768),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    make_hub(folder, names=EXPECTED)
    return folder


@pytest.mark.parametrize("name", EXPECTED)
def test_a_name_loads_offline(name: str, home: Path) -> None:
    """Special tokens stand around a text, and it has a vector for each token."""
    begin, end, width = EXPECTED[name]
    from_hub = {"cache_dir": str(home / "hub")}
    tokens = PretrainedTransformerTokenizer(name, tokenizer_kwargs=from_hub).tokenize("The cat.")
    assert (tokens[0].text, tokens[-1].text) == (begin, end)
    indexer = PretrainedTransformerIndexer(name, tokenizer_kwargs=from_hub)
    batch = Batch([Instance({"text": TextField(tokens, {"tokens": indexer})})])
    batch.index_instances(Vocabulary.empty())
    embedder = PretrainedTransformerEmbedder(
        name, transformer_kwargs=from_hub, tokenizer_kwargs=from_hub
    )
    vectors = embedder(**batch.as_tensor_dict()["text"]["tokens"])
    assert vectors.shape == (1, len(tokens), width) and torch.isfinite(vectors).all()


def test_a_checkpoint_that_is_there_is_kept(home: Path) -> None:
    name = "epwalsh/bert-xsmall-dummy"
    (folder,) = make_hub(home, names=[name])
    before = (folder / "pytorch_model.bin").stat().st_mtime_ns
    assert make_hub(home, names=[name]) == [folder]
    assert (folder / "pytorch_model.bin").stat().st_mtime_ns == before


def test_words_are_those_of_the_texts_by_frequency(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("zebra yak zebra AllenNLP")
    assert words_of([tmp_path])[-2:] == ["zebra", "yak"]
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere to take words from"):
        words_of([tmp_path / "nowhere"])
