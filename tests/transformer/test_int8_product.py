"""Compare int8 products with their definition, row by row."""

import numpy as np
import pytest
import torch

from declutr.transformer import int8_product
from declutr.transformer.int8_product import PACKED, PLAIN, Int8Product, rows_in_bytes


@pytest.fixture(params=[PLAIN, PACKED])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make each of the products the quickest in turn."""
    if request.param == PACKED and int8_product._operator("onednn", "qlinear_pointwise") is None:
        pytest.skip("this build of torch does not have it")
    monkeypatch.setattr(int8_product, "quickest", lambda shape: request.param)
    return request.param


@pytest.fixture(params=["fbgemm", "torch"])
def rounding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use each of the ways to round in turn."""
    known = int8_product._operator
    without = {"quantized"} if request.param == "torch" else set()
    monkeypatch.setattr(
        int8_product,
        "_operator",
        lambda library, name: None if library in without else known(library, name),
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("count", [1, 7])
def test_is_the_product_of_rounded_numbers(way: str, rounding, bias: bool, count: int) -> None:
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(12, 5, bias=bias), torch.randn(count, 12)
    x[:, 0] *= 50  # one feature far larger than the others

    rows = x.double().numpy()
    low, high = rows.min(axis=1, keepdims=True), rows.max(axis=1, keepdims=True)
    step = (high - low) / 255
    rows = np.round((rows - low) / step) * step + low
    weight = linear.weight.detach().double().numpy()
    scale = np.abs(weight).max(axis=1, keepdims=True) / int8_product.largest_weight()
    expected = rows @ (np.round(weight / scale) * scale).T
    if bias:
        expected = expected + linear.bias.detach().double().numpy()
    with torch.no_grad():
        got = Int8Product(linear.weight, linear.bias)(x)
    assert got.dtype == torch.float32
    assert np.abs(got.numpy() - expected).max() < 1e-4


def test_rows_do_not_depend_on_their_neighbours(way: str, rounding) -> None:
    torch.manual_seed(0)
    layer, x = Int8Product(torch.randn(5, 12), torch.randn(5), "gelu"), torch.randn(9, 12)
    x[4] *= 1e4
    together = layer(x)
    assert torch.allclose(together, torch.cat([layer(row[None]) for row in x]), rtol=1e-6)


def test_is_close_to_the_layer(way: str) -> None:
    """Compare also for outputs of GELU, which are mostly positive."""
    torch.manual_seed(0)
    linear, x = torch.nn.Linear(256, 64), torch.nn.functional.gelu(torch.randn(50, 256) * 3)
    with torch.no_grad():
        exact = torch.nn.functional.gelu(linear(x))
        got = Int8Product(linear.weight, linear.bias, "gelu")(x)
    assert (got - exact).norm() / exact.norm() < 0.02


def test_rows_of_zeros_stay_zero(way: str, rounding) -> None:
    weight, bias = torch.randn(3, 4), torch.randn(3)
    weight[1] = 0
    assert torch.allclose(Int8Product(weight, bias)(torch.zeros(2, 4)), bias.expand(2, 3))


def test_rows_are_quantized_up_to_rounding(rounding) -> None:
    torch.manual_seed(0)
    rows = torch.cat([torch.randn(3, 10), torch.full((1, 10), -2.5)])
    whole, scale, least = rows_in_bytes(rows)
    assert whole.dtype == torch.uint8 and whole.shape == rows.shape
    assert ((whole * scale + least - rows).abs() <= 0.51 * scale + 1e-6).all()


def test_sums_beyond_16_bits_are_exact(way: str) -> None:
    """Processors without VNNI add two products in 16 bits, so that weights must be smaller."""
    rows = torch.full((4, 64), 1.0)
    rows[:, 0] = 0  # the others are 255, its largest number
    expected = rows @ torch.ones(64)
    got = Int8Product(torch.ones(16, 64), None)(rows)
    assert torch.allclose(got, expected[:, None].expand(4, 16), rtol=1e-4)


def test_a_packed_product_with_saturated_sums_is_not_used(monkeypatch) -> None:
    """Simulate a packed kernel that adds in 16 bits, unlike the kernel that was tried."""
    onednn = int8_product._onednn

    def cut_off(*operands: torch.Tensor) -> torch.Tensor:
        return onednn(*operands).clamp(-500_000, 500_000)

    torch.manual_seed(0)
    linear, x = torch.nn.Linear(64, 16), torch.randn(4, 64)
    monkeypatch.setattr(int8_product, "quickest", lambda shape: PACKED)
    right = Int8Product(linear.weight, linear.bias)
    monkeypatch.setattr(int8_product, "_onednn", cut_off)
    other = Int8Product(linear.weight, linear.bias)
    assert right._packed is not None and other._packed is None
    assert torch.allclose(right(x), other(x), atol=1e-5)


@pytest.mark.parametrize("saturates", [True, False])
def test_weights_are_smaller_where_sums_saturate(saturates: bool, monkeypatch) -> None:
    def product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        sums = rows.int() @ weight.int()
        return sums.clamp_max(2_000_000 // 4) if saturates and weight.max() > 64 else sums

    monkeypatch.setattr(torch, "_int_mm", product)
    assert int8_product.largest_weight.__wrapped__() == (64 if saturates else 127)
