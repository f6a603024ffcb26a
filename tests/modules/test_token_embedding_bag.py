"""Tests of the bag of token vectors: its means, gradients, dropout and factors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.modules.seq2vec_encoders import BagOfEmbeddingsEncoder
from allennlp.modules.text_field_embedders import BasicTextFieldEmbedder

from declutr.archives.static_folder import read_static, write_static, write_tokenizer
from declutr.models.declutr import DeCLUTR
from declutr.models.encoding import embedded
from declutr.modules.token_embedding_bag import MeanOfBag, TokenEmbeddingBag
from tests.archives.test_static_folder import TABLE, VECTORS

IDS = torch.tensor([[3, 4, 4, 0], [5, 0, 0, 0], [0, 0, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()
TEXTS: Any = {"tokens": {"token_ids": IDS, "mask": MASK}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("static")
    write_static(TABLE, place)
    return place


def test_a_bag_is_the_mean_of_the_vectors_of_its_tokens(folder: Path) -> None:
    bag = TokenEmbeddingBag(str(folder))
    expected = [(VECTORS[3] + 2 * VECTORS[4]) / 3, VECTORS[5], 0 * VECTORS[5]]
    assert np.allclose(bag.bag(TEXTS).detach(), expected, atol=1e-6)
    mean = BagOfEmbeddingsEncoder(bag.get_output_dim(), averaged=True)
    assert np.allclose(mean(bag(TEXTS), MASK).detach(), expected, atol=1e-6)
    encoder = {"embedder": bag, "pooler": MeanOfBag(8)}
    assert torch.equal(embedded(encoder, TEXTS), bag.bag(TEXTS))
    assert torch.allclose(MeanOfBag(8)(bag(TEXTS), MASK), bag.bag(TEXTS), atol=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_both_ways_give_the_gradients_of_the_formula(
    folder: Path, weights: bool, sparse: bool
) -> None:
    found = []
    for way in ("bag", "pooler"):
        bag = TokenEmbeddingBag(str(folder), token_weights=weights, sparse=sparse).double()
        if bag.log_weights is not None:
            with torch.no_grad():
                bag.log_weights.copy_(torch.linspace(-1, 1, len(bag.weight))[:, None])
        means = bag.bag(TEXTS) if way == "bag" else MeanOfBag(8)(bag(TEXTS), MASK)
        factor = torch.arange(24, dtype=torch.float64).reshape(3, 8)
        (means * factor).sum().backward()
        grads = [p.grad for p in bag.parameters()]
        assert all(grad is not None and grad.is_sparse == sparse for grad in grads)
        found.append([means.detach(), *(grad.to_dense() for grad in grads)])
        table = bag.folded().detach()
        expected = torch.stack([(table[3] + 2 * table[4]) / 3, table[5], 0 * table[5]])
        assert torch.allclose(means.detach(), expected)
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other)
    if not weights:  # the gradient of a row is that of its texts, by its share in them
        assert torch.allclose(found[0][1][4], factor[0] * 2 / 3)


def test_dropout_of_tokens_is_the_mean_of_those_that_are_left(folder: Path) -> None:
    bag = TokenEmbeddingBag(str(folder), token_dropout=0.5)
    long: Any = {"tokens": {"token_ids": torch.full((50, 30), 7), "mask": torch.ones(50, 30) > 0}}
    torch.manual_seed(0)
    assert np.allclose(bag.bag(long).detach(), np.tile(VECTORS[7], (50, 1)), atol=1e-5)
    torch.manual_seed(0)
    one = bag.bag(TEXTS)
    torch.manual_seed(0)
    assert torch.allclose(MeanOfBag(8)(bag(TEXTS), MASK), one, atol=1e-6)
    assert not torch.equal(bag.bag(TEXTS), bag.bag(TEXTS))
    assert torch.equal(bag.eval().bag(TEXTS), bag.bag(TEXTS))


def test_the_model_pools_by_the_bag_unless_it_is_given_a_pooler(folder: Path) -> None:
    bag = TokenEmbeddingBag(str(folder), trainable=False)
    pooler = BagOfEmbeddingsEncoder(8, averaged=True)
    loss = {"type": "nt_xent"}
    from allennlp.common import Params

    from declutr.objectives import Objective

    parts: Any = {"vocab": Vocabulary(), "loss": Objective.from_params(Params(loss))}
    models = (
        DeCLUTR(text_field_embedder=bag, **parts),
        DeCLUTR(text_field_embedder=bag, seq2vec_encoder=pooler, **parts),
    )
    given, by_bag = (model.eval().embed(TEXTS) for model in models[::-1])
    assert isinstance(models[0]._seq2vec_encoder, MeanOfBag)
    assert torch.allclose(given, by_bag, atol=1e-6)
    with pytest.raises(ConfigurationError, match="token_embedding_bag has no table in a Basic"):
        basic = BasicTextFieldEmbedder({"tokens": torch.nn.Embedding(3, 8)})  # type: ignore[dict-item]
        basic.get_output_dim = lambda: 8  # type: ignore[method-assign]
        DeCLUTR(text_field_embedder=basic, seq2vec_encoder=MeanOfBag(8), **parts)


def test_an_archive_is_opened_without_a_table(folder: Path, tmp_path: Path) -> None:
    write_tokenizer(read_static(folder), tmp_path)
    bag = TokenEmbeddingBag(str(tmp_path), load_weights=False)
    assert bag.weight.shape == VECTORS.shape and not bag.weight.any()
    with pytest.raises(ConfigurationError, match="holds no static encoder"):
        TokenEmbeddingBag(str(tmp_path))


def test_wrong_settings_and_texts_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"token_dropout must lie in \[0, 1\), got 1"):
        TokenEmbeddingBag(str(folder), token_dropout=1)
    texts: Any = {"tokens": {"characters": torch.zeros(2, 3, 4), "mask": MASK}}
    with pytest.raises(ConfigurationError, match="one indexer of type pretrained_transformer"):
        TokenEmbeddingBag(str(folder)).bag(texts)
