import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from declutr.transformer import repeatable_dropout
from declutr.transformer.packed_attention import PackedAttention
from declutr.transformer.packing import Packing
from declutr.transformer.repeatable_dropout import RepeatableDropout, dropout


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.999])
def test_dropout_has_the_rate_and_preserves_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    values = torch.ones(1000, 400)
    dropped = dropout(values, probability)
    share = float((dropped == 0).float().mean())
    error = 5 * np.sqrt(probability * (1 - probability) / values.numel())
    assert share == pytest.approx(probability, abs=error)
    kept = dropped[dropped != 0]
    assert torch.allclose(kept, torch.full_like(kept, 1 / (1 - probability)), rtol=2e-2)
    assert float(dropped.mean()) == pytest.approx(1, abs=error / (1 - probability))


def test_every_part_of_a_random_word_has_the_same_rate() -> None:
    masks = RepeatableDropout(0.1, torch.tensor(3))
    values = torch.ones(500, 1001)
    kept = masks.zero(values, masks.comparable(masks.draw(values.shape), values), out=values)
    for place in range(4):  # four values share a number of 64 bits
        share = kept.flatten()[place::4].mean().item()
        assert share == pytest.approx(0.9, abs=5e-3)


def test_rates_of_one_and_zero() -> None:
    values = torch.randn(5, 7)
    assert torch.equal(dropout(values, 0.0), values)
    assert torch.equal(dropout(values, 1.0), torch.zeros(5, 7))


def test_neighbours_are_independent() -> None:
    torch.manual_seed(0)
    kept = dropout(torch.ones(1 << 18), 0.5) > 0
    for lag in (1, 2, 3, 4, 8, 64):  # four values share a random word
        together = float((kept[lag:] == kept[:-lag]).float().mean())
        assert together == pytest.approx(0.5, abs=0.01), lag


def test_torchs_seed_repeats_dropout_and_a_second_call_differs() -> None:
    values = torch.ones(64, 64)
    torch.manual_seed(3)
    first, second = dropout(values, 0.3), dropout(values, 0.3)
    torch.manual_seed(3)
    assert torch.equal(dropout(values, 0.3), first)
    assert not torch.equal(first, second)


def test_the_same_seed_draws_the_same_levels_in_order() -> None:
    once, again = (RepeatableDropout(0.4, torch.tensor(3)) for _ in range(2))
    for shape in (torch.Size([3, 5]), torch.Size([1]), torch.Size([2, 2, 9])):
        drawn = once.draw(shape)
        assert drawn.shape == shape
        assert torch.equal(drawn, again.draw(shape))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_levels_drop_the_same_values_in_every_dtype(dtype: torch.dtype) -> None:
    masks = RepeatableDropout(0.25, torch.tensor(3))
    levels = torch.tensor([-32768, -16385, -16384, 0, 32767], dtype=torch.int16)
    values = torch.tensor([1, 2, -3, float("inf"), -5], dtype=dtype)
    out = masks.zero(values, masks.comparable(levels, values), out=torch.empty_like(values))
    assert torch.equal(out, torch.tensor([0, 0, -3, float("inf"), -5], dtype=dtype))


def test_the_number_of_values_drawn_at_once_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = torch.randn(10, 301, requires_grad=True)
    found = []
    for at_once in (1 << 16, 64):
        monkeypatch.setattr(repeatable_dropout, "_VALUES_AT_ONCE", at_once)
        torch.manual_seed(0)
        dropped = dropout(values, 0.3)
        found.append([dropped, *torch.autograd.grad(dropped.sum(), values)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=3), st.floats(0, 1))
def test_tensors_may_have_any_shape(shape: list[int], probability: float) -> None:
    assert dropout(torch.ones(shape), probability).shape == torch.Size(shape)


def test_gradients_are_dropped_like_values() -> None:
    values = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)

    def seeded(tensor: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return dropout(tensor, 0.5)

    assert torch.autograd.gradcheck(seeded, (values,))


def test_packed_attention_uses_repeatable_dropout() -> None:
    packing = Packing([3, 2], 3, torch.device("cpu"))
    layer = torch.nn.Dropout(0.5)
    values = torch.ones(1, 5, 4)
    with PackedAttention(packing):
        torch.manual_seed(0)
        trained = layer(values)
        assert torch.equal(layer.eval()(values), values)
    torch.manual_seed(0)
    assert torch.equal(trained, dropout(values, 0.5))
