"""Compare poolings with their definitions, with arbitrary vectors at padding."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqModelOutput

from declutr.transformer.pooling import LAYERS, POOLINGS, layers_of, mean_of_layers, pooled

EXPECTED = {
    "mean": 2.0,
    **dict.fromkeys(LAYERS, 2.0),
    "max": 3.0,
    "cls": 1.0,
    "last": 3.0,
    "mean-sqrt-length": 4 / np.sqrt(2),
}


def test_all_poolings_are_tested() -> None:
    assert {*EXPECTED, "pooler"} == set(POOLINGS)


@pytest.mark.parametrize("pooling", list(EXPECTED))
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_vectors_at_padding_have_no_effect(pooling: str, dtype: torch.dtype) -> None:
    vectors = torch.tensor([[[1.0], [3.0], [float("nan")]]])
    mask = torch.tensor([[1, 1, 0]]).to(dtype)
    assert pooled(vectors, mask, pooling).item() == pytest.approx(EXPECTED[pooling])


@pytest.mark.parametrize("pooling", list(EXPECTED))
def test_each_row_is_pooled_by_its_own_length(pooling: str) -> None:
    torch.manual_seed(0)
    vectors, lengths = torch.randn(4, 5, 3), [5, 1, 3, 2]
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    together = pooled(vectors.bfloat16(), mask, pooling)
    assert together.dtype == torch.float32
    for row, length in enumerate(lengths):
        alone = vectors[row : row + 1, :length].bfloat16()
        expected = pooled(alone, torch.ones(1, length, dtype=torch.bool), pooling)
        assert torch.allclose(together[row], expected[0], atol=1e-6)


@pytest.mark.parametrize(
    "layers, numbers", [("first-last", (1, 3)), ("embedding-last", (0, 3)), ("last-two", (2, 3))]
)
def test_the_mean_of_two_layers(layers: str, numbers: tuple[int, int]) -> None:
    states = [torch.full((1, 2, 1), 10.0**number) for number in range(4)]
    expected = sum(10.0**number for number in numbers) / 2
    assert mean_of_layers(states, layers).flatten().tolist() == [expected] * 2
    halves = mean_of_layers([state.bfloat16() for state in states], layers)
    assert halves.dtype == torch.float32


def test_layers_of_a_decoder_and_of_other_shapes() -> None:
    last, states = torch.zeros(1, 2, 3), (torch.ones(1, 2, 3), torch.zeros(1, 2, 3))
    both: Any = {"encoder_hidden_states": states[:1], "decoder_hidden_states": states}
    assert layers_of(Seq2SeqModelOutput(last_hidden_state=last, **both)) is states
    several = torch.zeros(4, 1, 2, 3)  # as in Gemma 3n, whose layers have four streams
    for layers in ((several, several), ()):
        output = BaseModelOutput(last_hidden_state=last, hidden_states=layers)
        shapes = r"\[\(4, 1, 2, 3\)\]" if layers else "none"
        with pytest.raises(ValueError, match=rf"layers of shapes {shapes}, and its output has"):
            layers_of(output)


def test_an_unknown_pooling_is_refused() -> None:
    with pytest.raises(ValueError, match=r"No pooling of tokens is called 'median': expected one"):
        pooled(torch.zeros(1, 2, 3), torch.ones(1, 2, dtype=torch.bool), "median")
