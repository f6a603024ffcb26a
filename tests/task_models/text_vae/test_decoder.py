"""The decoder predicts a token from the tokens before it and the code."""

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from declutr.task_models.text_vae.layers import CELLS, CodeDecoder


@pytest.mark.parametrize("cell", list(CELLS))
def test_predicts_from_the_past_and_the_code(cell: str) -> None:
    torch.manual_seed(0)
    decoder = CodeDecoder(cell, 5, 3, 8, 11)
    inputs, code = torch.randn(2, 6, 5), torch.randn(2, 3)
    logits = decoder(inputs, code)
    assert logits.shape == (2, 6, 11)
    changed = inputs.clone()
    changed[:, 4] += 1
    after = decoder(changed, code)
    assert torch.equal(after[:, :4], logits[:, :4]) and not torch.equal(after[:, 4:], logits[:, 4:])
    other = decoder(inputs, code + torch.tensor([[0.0], [1.0]]))
    assert torch.equal(other[0], logits[0])
    assert (other[1] != logits[1]).any(dim=-1).all(), "the code reaches every step"


def test_an_unknown_cell_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Unknown cell 'rnn': expected one of lstm, gru"):
        CodeDecoder("rnn", 5, 3, 8, 11)
