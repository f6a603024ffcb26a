"""Products of whole numbers against the definition, row by row."""

import numpy as np
import pytest
import torch

from declutr.text_models.quantization import Int8Linear, quantize_linear_layers


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7, 12), (2, 3, 12), (1, 12)])
def test_is_the_product_of_rounded_numbers(bias: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(12, 5, bias=bias), torch.randn(shape)
    x[..., 0] *= 50  # one feature far larger than the others

    rows = x.reshape(-1, 12).double().numpy()
    low, high = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
    step = (high - low) / 255
    rows = np.round((rows - low - 128 * step) / step) * step + low + 128 * step
    weight = linear.weight.detach().double().numpy()
    scale = np.abs(weight).max(axis=1, keepdims=True) / 127
    expected = rows @ (np.round(weight / scale) * scale).T
    if bias:
        expected = expected + linear.bias.detach().double().numpy()
    with torch.no_grad():
        got = Int8Linear(linear)(x)
    assert got.shape == (*shape[:-1], 5)
    assert np.abs(got.reshape(-1, 5).numpy() - expected).max() < 1e-4


def test_rows_do_not_depend_on_their_neighbours() -> None:
    torch.manual_seed(0)
    layer, x = Int8Linear(torch.nn.Linear(12, 5)), torch.randn(9, 12)
    x[4] *= 1e4
    with torch.no_grad():
        together = layer(x)
        assert torch.equal(together, torch.cat([layer(row[None]) for row in x]))


def test_is_close_to_the_layer() -> None:
    """Also for what GELU gives: nothing much below zero, far more above."""
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(256, 64), torch.nn.functional.gelu(torch.randn(50, 256) * 3)
    with torch.no_grad():
        exact, got = linear(x), Int8Linear(linear)(x)
    assert (got - exact).norm() / exact.norm() < 0.01


def test_rows_of_zeros() -> None:
    linear = torch.nn.Linear(4, 3)
    with torch.no_grad():
        linear.weight[1] = 0
        assert torch.allclose(Int8Linear(linear)(torch.zeros(2, 4)), linear.bias.expand(2, 3))


def test_every_linear_layer_and_nothing_else() -> None:
    module = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    )
    quantize_linear_layers(module)
    kinds = [type(part).__name__ for part in module.modules() if not list(part.children())]
    assert kinds == ["Int8Linear", "LayerNorm", "Int8Linear"]
