"""The pooler "token_pooling" against loops over texts, alone and behind an LSTM of AllenNLP."""

import copy
import math
from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules import Seq2VecEncoder
from torch import Tensor

import declutr.plugin  # noqa: F401
from declutr.modules.token_pooling import TokenPooling
from declutr.transformer.pooling import TOKEN_POOLINGS
from tests.objectives.oracles import normal

LSTM = {"type": "lstm", "input_size": 4, "hidden_size": 3, "bidirectional": True}
LENGTHS = [5, 1, 3, 4]


def made(**settings: Any) -> TokenPooling:
    torch.manual_seed(0)
    return Seq2VecEncoder.from_params(
        Params(copy.deepcopy({"type": "token_pooling", "embedding_dim": 4, **settings}))
    )


def texts(filler: float = 0.0) -> tuple[Tensor, Tensor]:
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    tokens = normal(4, 5, 4, dtype=torch.float32).masked_fill(~mask.unsqueeze(-1), filler)
    return tokens.requires_grad_(), mask


def by_hand(vectors: Tensor, pooling: str) -> list[float]:
    """The embedding of one text of token vectors `(l, d)`, in float64."""
    columns = vectors.double().T.tolist()
    return {
        "mean": lambda: [sum(column) / len(column) for column in columns],
        "cls": lambda: [column[0] for column in columns],
        "max": lambda: [max(column) for column in columns],
        "mean-sqrt-length": lambda: [sum(column) / math.sqrt(len(column)) for column in columns],
        "last": lambda: [column[-1] for column in columns],
    }[pooling]()


@pytest.mark.parametrize("pooling", TOKEN_POOLINGS)
@pytest.mark.parametrize("filler", [0.0, 1e6, math.nan])
def test_each_text_is_pooled_without_its_padding(pooling: str, filler: float) -> None:
    pooler, (tokens, mask) = made(pooling=pooling), texts(filler)
    rows = pooler(tokens, mask)
    for row, length, text in zip(rows, LENGTHS, tokens, strict=True):
        assert row.tolist() == pytest.approx(by_hand(text[:length], pooling), rel=1e-5, abs=1e-6)
    (rows.sin().sum()).backward()
    assert tokens.grad is not None
    assert not tokens.grad[~mask].any() and tokens.grad.isfinite().all()


@pytest.mark.parametrize("pooling", ["max", "mean", "last"])
def test_what_an_lstm_makes_of_a_text_is_pooled(pooling: str) -> None:
    """Against torch's own LSTM over each text alone."""
    pooler, (tokens, mask) = made(pooling=pooling, encoder=LSTM), texts()
    rows = pooler(tokens, mask)
    assert (pooler.get_input_dim(), pooler.get_output_dim()) == (4, 6) and rows.shape == (4, 6)
    lstm = torch.nn.LSTM(4, 3, bidirectional=True)
    lstm.load_state_dict(pooler.encoder._module.state_dict())
    for row, length, text in zip(rows, LENGTHS, tokens, strict=True):
        alone, _ = lstm(text[:length])
        assert row.tolist() == pytest.approx(by_hand(alone, pooling), abs=1e-6)
    rows.square().sum().backward()
    assert all(p.grad is not None for p in pooler.parameters())


@pytest.mark.parametrize("pooling", TOKEN_POOLINGS)
@pytest.mark.parametrize("encoder", [None, LSTM])
def test_a_text_without_tokens_is_zero(pooling: str, encoder: dict | None) -> None:
    tokens, mask = texts()
    mask[1] = False
    rows = made(pooling=pooling, encoder=encoder)(tokens, mask)
    rows.square().sum().backward()
    assert not rows[1].any() and rows[0].any()
    assert tokens.grad is not None and tokens.grad.isfinite().all() and not tokens.grad[1].any()


@pytest.mark.parametrize("pooling", ["mean", "max", "last"])
def test_tokens_that_are_cut_inside_a_text_are_left_out(pooling: str) -> None:
    tokens, mask = texts()
    mask[0, [1, 4]] = False
    row = made(pooling=pooling)(tokens, mask)[0]
    assert row.tolist() == pytest.approx(by_hand(tokens[0, [0, 2, 3]], pooling), rel=1e-5)


@pytest.mark.parametrize(
    "settings, told",
    [
        (
            {"pooling": "sum"},
            "No pooling of tokens is called 'sum'. Expected one of mean, cls, max",
        ),
        ({"pooling": "first-last"}, 'It is "layers": "first-last" of the token embedder'),
        ({"encoder": {**LSTM, "input_size": 5}}, "takes vectors of width 5, but .* are 4 wide"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        made(**settings)
