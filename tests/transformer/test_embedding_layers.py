"""Features of the embedding layer are zero within a context, and only there."""

import pytest
import torch
from transformers import BertConfig, BertModel

from declutr.transformer.architectures import embedding_layer, embedding_width, features_zeroed

IDS = torch.tensor([[2, 5, 6, 3], [2, 7, 8, 3]])


@pytest.fixture(scope="module")
def bert() -> BertModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=20, intermediate_size=8, **sizes)
    return BertModel(config, add_pooling_layer=False).eval()


def test_features_are_zero_within_the_block(bert: BertModel) -> None:
    zeroed = torch.zeros(2, 1, 8, dtype=torch.bool)
    zeroed[0, 0, :3] = zeroed[1, 0, 5] = True
    with torch.no_grad():
        before = bert.embeddings(IDS)
        with features_zeroed(bert, zeroed):
            within = bert.embeddings(IDS)
        after = bert.embeddings(IDS)
    assert torch.equal(within, before * ~zeroed) and torch.equal(after, before)


def test_the_hook_goes_with_an_exception(bert: BertModel) -> None:
    with pytest.raises(RuntimeError, match="mine"), features_zeroed(bert, torch.ones(8).bool()):
        raise RuntimeError("mine")
    assert bert.embeddings(IDS).any()


def test_vectors_of_another_width_are_refused(bert: BertModel) -> None:
    with (
        pytest.raises(ValueError, match=r"BertEmbeddings to give vectors 7 wide.*got 8"),
        features_zeroed(bert, torch.zeros(1, 1, 7).bool()),
    ):
        bert(IDS)
    assert embedding_width(bert) == 8


def test_a_transformer_without_an_embedding_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear has no part 'embeddings'"):
        embedding_layer(torch.nn.Linear(2, 2))
