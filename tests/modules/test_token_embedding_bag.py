"""Tests of the bag of token vectors: its means, gradients, dropout and factors."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.models import Model
from allennlp.modules.seq2vec_encoders import BagOfEmbeddingsEncoder
from allennlp.modules.text_field_embedders import BasicTextFieldEmbedder
from allennlp.training.optimizers import DenseSparseAdam

from declutr.archives.static_folder import read_static, write_static, write_tokenizer
from declutr.models.declutr import DeCLUTR
from declutr.models.encoding import embedded
from declutr.models.views import DropoutRateViews
from declutr.modules.token_embedding_bag import MeanOfBag, TokenEmbeddingBag
from declutr.objectives import Objective
from tests.archives.test_static_folder import TABLE, VECTORS
from tests.objectives import test_laws

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


# What the model needs beside an objective. Without an entry it has two views of the reader.
PARTS: dict[str, dict[str, Any]] = {
    "scd": {"head": {"type": "projector", "hidden_dims": [5, 3]}},
    "byol": {"momentum_encoder": {}},
    "is_bert": {"seq2vec_encoder": {"type": "ngram_convolutions", "channels": 2}},
    "contrastive_tension": {"views": {"type": "tension", "negatives": 1}, "two_encoders": True},
    "quick_thoughts": {"views": "dropout", "two_encoders": True},
}
ONE_TEXT = {"cpc", "deep_cluster", "distillation", "instance_discrimination", "is_bert"}
ONE_TEXT |= {"contrastive_tension", "quick_thoughts"}


@pytest.mark.parametrize("name", [name for name in Objective.list_available() if name[0] != "_"])
def test_every_objective_takes_a_step_with_it(name: str, tmp_path: Path) -> None:
    """And the gradient of the rows of a batch is that of the whole table."""
    cases = {n: (settings, given) for n, settings, given in test_laws.CASES[::-1]}
    library: tuple = ({"loss": "NTXentLoss"}, {})
    settings, given = cases.get(name, library)
    write_static(TABLE.with_vectors(VECTORS[:, : test_laws.WIDTH]), tmp_path)
    ids = torch.randint(
        3, 10, (2, test_laws.ROWS, 1, 5), generator=torch.Generator().manual_seed(0)
    )
    mask = torch.arange(5) < torch.tensor([5, 3, 4, 1, 2, 5]).reshape(-1, 1, 1)
    texts: Any = [{"tokens": {"token_ids": some * mask, "mask": mask}} for some in ids]
    found = []
    for sparse in (False, True):
        embedder = {"type": "token_embedding_bag", "model_name": str(tmp_path), "sparse": sparse}
        config = {"type": "declutr", "text_field_embedder": embedder, **PARTS.get(name, {})}
        config["loss"] = {"type": name, **settings}
        torch.manual_seed(0)
        model = Model.from_params(Params(copy.deepcopy(config)), vocab=Vocabulary())
        optimizer = DenseSparseAdam(model.named_parameters())
        second = {} if name in ONE_TEXT else {"positives": texts[1]}
        model(anchors=texts[0], **second, **given)["loss"].backward()
        (table,) = [
            p.grad for n, p in model.named_parameters() if n == "_text_field_embedder.weight"
        ]
        assert table is not None and table.is_sparse == sparse
        optimizer.step()
        found.append(table.to_dense())
    assert found[0].any() and torch.allclose(*found, rtol=1e-4, atol=1e-6)


def test_two_rates_of_dropout_are_of_tokens(folder: Path) -> None:
    bag = TokenEmbeddingBag(str(folder), token_dropout=0.3)
    views = DropoutRateViews(low=0.0, high=0.9)
    long: Any = {
        "tokens": {"token_ids": torch.arange(6).repeat(50, 5), "mask": torch.ones(50, 30) > 0}
    }
    torch.manual_seed(0)
    spread = []
    for name in ("anchors", "positives"):
        with views.within(name, bag):
            spread.append(bag.bag(long).std(dim=0).mean().item())
    assert spread[0] == pytest.approx(0, abs=1e-6) and spread[1] > 0.1 and bag.token_dropout == 0.3


def test_an_archive_is_opened_without_a_table(folder: Path, tmp_path: Path) -> None:
    write_tokenizer(read_static(folder), tmp_path)
    bag = TokenEmbeddingBag(str(tmp_path), load_weights=False)
    assert bag.weight.shape == VECTORS.shape and not bag.weight.any()
    with pytest.raises(ConfigurationError, match="holds no static encoder"):
        TokenEmbeddingBag(str(tmp_path))


def test_sparse_gradients_are_of_one_process(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("declutr.modules.token_embedding_bag.is_distributed", lambda: True)
    bag = TokenEmbeddingBag(str(folder), sparse=True)
    with pytest.raises(
        ConfigurationError, match=r"Set model\.text_field_embedder\.sparse to false"
    ):
        bag.bag(TEXTS)
    assert bag.eval().bag(TEXTS).shape == (3, 8)


def test_wrong_settings_and_texts_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"token_dropout must lie in \[0, 1\), got 1"):
        TokenEmbeddingBag(str(folder), token_dropout=1)
    texts: Any = {"tokens": {"characters": torch.zeros(2, 3, 4), "mask": MASK}}
    with pytest.raises(ConfigurationError, match="one indexer of type pretrained_transformer"):
        TokenEmbeddingBag(str(folder)).bag(texts)
