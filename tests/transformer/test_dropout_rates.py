"""Every dropout of a pass gets the requested rate, in every family, and is restored afterwards.

Features of the embedding layer are zero within a context, and only there.
"""

from typing import Any

import pytest
import torch
import transformers
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode
from transformers import AutoModel, BertConfig, BertModel

from declutr.transformer.architectures import (
    dropout_rate,
    embedding_layer,
    embedding_width,
    features_zeroed,
)
from tests.families import FAMILIES


class Rates(TorchFunctionMode):
    """A context that records the rates of dropout and fused attention passed to torch."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[float] = []
        self.attention: list[float] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is dropout:
            self.layers.append(args[1] if len(args) > 1 else kwargs["p"])
        if func is scaled_dot_product_attention:
            self.attention.append(kwargs["dropout_p"])
        return func(*args, **kwargs)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_dropout_of_a_pass_has_the_rate(family: str, attention: str) -> None:
    tokenizer_of, config_of = FAMILIES[family]
    tokenizer = tokenizer_of()
    try:
        model = AutoModel.from_config(config_of(tokenizer), attn_implementation=attention).train()
    except ValueError as error:
        pytest.skip(f"transformers {transformers.__version__}: {str(error)[:80]}")
    inputs = tokenizer(["the old house by the river", "why"], padding=True, return_tensors="pt")

    def rates() -> Rates:
        with Rates() as seen:
            model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        return seen

    own = rates()
    for rate in (0.0, 0.25):
        with dropout_rate(model, rate):
            seen = rates()
        assert set(seen.layers) <= {rate} and seen.layers
        assert set(seen.attention) <= {rate} and bool(seen.attention) == (attention == "sdpa")
    after = rates()
    assert (after.layers, after.attention) == (own.layers, own.attention)
    model.eval()
    with dropout_rate(model, 0.5), Rates() as seen:
        model(input_ids=inputs["input_ids"])
    assert set(seen.attention) <= {0.0}


def test_own_rates_come_back_after_an_error() -> None:
    module = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Dropout(0.3))
    module.attention_dropout = 0.2
    with pytest.raises(RuntimeError, match="inside"), dropout_rate(module, 0.5):
        assert [part.p for part in module] == [0.5, 0.5] and module.attention_dropout == 0.5
        raise RuntimeError("inside")
    assert [part.p for part in module] == [0.1, 0.3] and module.attention_dropout == 0.2


def test_other_attributes_are_left_alone() -> None:
    module = torch.nn.Linear(2, 2)
    module.layerdrop, module.use_dropout, module.dropout_kind = 0.1, True, "fast"
    with dropout_rate(module, 0.5):
        assert (module.layerdrop, module.use_dropout, module.dropout_kind) == (0.1, True, "fast")


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2])
def test_rates_out_of_range_are_refused(rate: float) -> None:
    with (
        pytest.raises(ValueError, match=rf"lies in \[0, 1\), got {rate}"),
        dropout_rate(torch.nn.Dropout(), rate),
    ):
        pass


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
