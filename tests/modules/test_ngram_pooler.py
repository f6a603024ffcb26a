"""The pooler "ngram_convolutions": local vectors and their mean."""

import math

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from allennlp.modules import Seq2VecEncoder

import declutr.plugin  # noqa: F401
from declutr.modules.ngram_pooler import NGramConvolutions
from declutr.objectives import ISBert
from tests.objectives.oracles import normal
from tests.objectives.without_negatives.test_mutual_information import lengths_mask


@pytest.mark.parametrize("filler", [0.0, 1e6, math.nan, math.inf])
def test_padding_has_no_effect(filler: float) -> None:
    """It affects neither the loss nor its neighbours in the convolutions."""
    pooler = NGramConvolutions(4, channels=3)
    tokens, mask = normal(3, 6, 4, dtype=torch.float32), lengths_mask([6, 2, 4], 6)
    results = []
    for value in (1.0, filler):
        padded = tokens.masked_fill(~mask.unsqueeze(-1), value).requires_grad_()
        local = pooler.local_vectors(padded, mask)
        loss = ISBert()(local, mask, pooler.mean(local, mask))
        loss.backward()
        assert padded.grad is not None and not padded.grad[~mask].any()
        results += [torch.cat([loss.view(1), pooler(padded, mask).flatten()])]
    assert torch.equal(*results)
    alone = pooler(tokens[1:2, :2], mask[1:2, :2])  # as without padding
    assert torch.allclose(results[0][1:].view(3, -1)[1:2], alone, atol=1e-6)


def test_the_embedding_is_the_mean_of_local_vectors() -> None:
    pooler = NGramConvolutions(4, channels=2, kernels=(1, 3)).double()
    tokens, mask = normal(3, 5, 4), lengths_mask([5, 1, 0], 5)
    local = pooler.local_vectors(tokens, mask)
    assert local.shape == (3, 5, 4) == (3, 5, pooler.get_output_dim())
    embedded = pooler(tokens, mask)
    assert torch.allclose(embedded[0], local[0].mean(dim=0))
    assert torch.allclose(embedded[1], local[1, 0]) and not embedded[2].any()


def test_convolutions_see_their_neighbours_only() -> None:
    layer = NGramConvolutions(2, channels=1, kernels=(3,), relu=False).double()
    (convolution,) = layer.convolutions
    tokens, mask = normal(1, 5, 2), torch.ones(1, 5)
    weight, bias = convolution.weight[0].T, convolution.bias  # (3, 2)
    padded = torch.cat([tokens.new_zeros(1, 2), tokens[0], tokens.new_zeros(1, 2)])
    expected = torch.stack([(padded[i : i + 3] * weight).sum() + bias[0] for i in range(5)])
    assert torch.allclose(layer.local_vectors(tokens, mask)[0, :, 0], expected)
    rectified = NGramConvolutions(2, channels=1, kernels=(3,)).double()
    rectified.load_state_dict(layer.state_dict())
    assert torch.allclose(rectified.local_vectors(tokens, mask)[0, :, 0], expected.clamp_min(0))


def test_registered_name_and_errors() -> None:
    settings = {"embedding_dim": 4, "channels": 2, "kernels": [1, 5], "relu": False}
    built = Seq2VecEncoder.from_params(Params({"type": "ngram_convolutions", **settings}))
    assert isinstance(built, NGramConvolutions) and not built.relu
    assert (built.get_input_dim(), built.get_output_dim()) == (4, 4)
    assert [layer.kernel_size for layer in built.convolutions] == [(1,), (5,)]
    with pytest.raises(ConfigurationError, match=r"kernels must be odd.*got \[2\]"):
        NGramConvolutions(4, kernels=(2,))
    with pytest.raises(ConfigurationError, match="channels must be"):
        NGramConvolutions(4, channels=0)
