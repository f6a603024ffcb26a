"""Tests of the quickest kernels of linear layers in training."""

from pathlib import Path
from unittest import mock

import pytest
import torch
from torch.nn.functional import linear

from declutr.system.kernel_choices import CHOICES, PLAIN
from declutr.transformer import training_products as linear_products
from declutr.transformer.training_products import (
    Products,
    QuickProducts,
    plain_products,
    quick_products,
    settle_products,
)


def products(x: torch.Tensor, layer: torch.nn.Linear) -> list[torch.Tensor]:
    """Return the output, and the gradients of its sum of squares by input, weight and bias."""
    x = x.detach().requires_grad_()
    output = layer(x)
    return [output, *torch.autograd.grad(output.square().sum(), [x, *layer.parameters()])]


WAYS = dict.fromkeys(
    [
        *((way, "onednn", "onednn") for way in linear_products._OUTPUT),
        *(("onednn", way, "onednn") for way in linear_products._INPUT_GRADIENT),
        *(("onednn", "onednn", way) for way in linear_products._WEIGHT_GRADIENT),
    ]
)


@pytest.mark.parametrize("names", WAYS)
@pytest.mark.parametrize("shape", [(7, 40), (2, 3, 40), (0, 40), (40,), (2, 19, 40)])
def test_every_way_is_exact(
    names: tuple[str, str, str],
    shape: tuple[int, ...],
    onednn_products: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linear_products, "products_of", lambda *_: Products(*names))
    for rows in ("_ROWS_IN_SUM", "_ROWS_REORDERED"):
        monkeypatch.setattr(linear_products, rows, 16)  # 38 rows: 16, 16 and 6
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(40, 24), torch.randn(shape)
    with QuickProducts():
        found = products(x, layer)
    expected = products(x.double(), layer.double())
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rows, expected", [(1, 8), (8, 8), (407, 408), (0, 0)])
def test_rows_of_large_layers_are_a_multiple_of_eight(rows: int, expected: int) -> None:
    assert linear_products.quick_rows(rows, linear_products.LEAST_WEIGHTS) == expected
    assert linear_products.quick_rows(rows, linear_products.LEAST_WEIGHTS - 1) == rows


@pytest.mark.parametrize("rows", [0, 1, 64, 65, 330])
@pytest.mark.parametrize("threads", [1, 2, 16])
def test_a_matrix_is_transposed_some_rows_at_a_time(
    rows: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    matrix = torch.randn(rows, 2000)  # 64 rows at a time, with 16 threads 256
    transposed = linear_products._transposed(matrix)
    assert transposed.is_contiguous()
    assert torch.equal(transposed, matrix.t())


def test_layers_without_bias_and_with_frozen_parameters(onednn_products: None) -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(40, 24, bias=False), torch.randn(7, 40, requires_grad=True)
    layer.requires_grad_(False)
    saved: list[torch.Tensor] = []
    with (
        QuickProducts(),
        torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t), t)[1], lambda t: t),
    ):
        layer(x).sum().backward()
    assert [tensor.shape for tensor in saved] == [layer.weight.shape]  # and not the input
    torch.testing.assert_close(x.grad, layer.weight.sum(dim=0).expand(7, 40))


def test_gradients_can_be_differentiated(onednn_products: None) -> None:
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(40, 24), torch.randn(7, 40, requires_grad=True)

    def penalty() -> torch.Tensor:
        (slope,) = torch.autograd.grad(layer(x).tanh().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), layer.weight)[0]

    expected = penalty()
    with QuickProducts():
        torch.testing.assert_close(penalty(), expected, rtol=1e-4, atol=1e-5)


def test_what_is_left_to_torch_is_equal_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> Products:
        raise AssertionError("not to be asked")

    torch.manual_seed(0)
    x = torch.randn(64, 256)
    small, large = torch.nn.Linear(256, 255), torch.nn.Linear(256, 256)
    monkeypatch.setattr(linear_products, "products_of", fails)
    with QuickProducts():
        assert torch.equal(small(x), linear(x, small.weight, small.bias))
        with torch.autocast("cpu", torch.bfloat16):
            assert large(x).dtype == torch.bfloat16
        assert large.double()(x.double()).dtype == torch.float64
        with torch.backends.mkldnn.flags(enabled=False):
            large.float()(x)
        with pytest.raises(AssertionError, match="not to be asked"):
            large.float()(x)


@pytest.mark.parametrize("names", [None, Products("a way", "of a later", "release")])
def test_plain_kernels_and_unknown_ones_are_torchs_own(monkeypatch, names) -> None:
    if names is None:
        monkeypatch.setenv("DECLUTR_KERNELS", PLAIN)
        monkeypatch.setitem(linear_products._OUTPUT, "onednn", lambda *_: pytest.fail("not off"))
    else:
        monkeypatch.setattr(linear_products, "products_of", lambda *_: names)
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(256, 512), torch.randn(64, 256)
    expected = products(x, layer)
    with QuickProducts():
        assert all(map(torch.equal, products(x, layer), expected))


def test_only_uncompiled_passes_on_the_cpu_are_changed() -> None:
    model = torch.nn.Linear(2, 2)
    assert isinstance(quick_products(model, torch.device("cpu")), QuickProducts)
    assert not isinstance(quick_products(model, torch.device("cuda")), QuickProducts)
    model.compile()
    assert not isinstance(quick_products(model, torch.device("cpu")), QuickProducts)


def test_kernels_are_chosen_for_the_layers_of_a_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DECLUTR_CACHE", str(tmp_path))
    monkeypatch.setattr(linear_products, "LEAST_WEIGHTS", 64)
    CHOICES.forget()
    settle_products(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)))
    asked = [question.removeprefix("float32 linear layer 8 to 8, ") for question in CHOICES.taken()]
    CHOICES.forget()
    threads = f"{torch.get_num_threads()} threads"
    assert asked == [
        f"2048 rows, output, {threads}",
        f"2048 rows, input gradient, {threads}",
        f"4096 rows, gradients of weight and bias, {threads}",
    ]


def test_lower_precision_is_left_to_torch(onednn_products: None, monkeypatch) -> None:
    layer, x = torch.nn.Linear(40, 24), torch.randn(7, 40)
    onednn = mock.Mock(side_effect=linear_products._onednn)
    monkeypatch.setitem(linear_products._OUTPUT, "onednn", onednn)
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with QuickProducts():
            layer(x)
    finally:
        torch.set_float32_matmul_precision(precision)
    assert not onednn.called
    with QuickProducts():
        layer(x)
    assert onednn.call_count == 1


@pytest.mark.parametrize("names", WAYS)
def test_rows_that_are_not_contiguous_are_copied(names, onednn_products: None, monkeypatch) -> None:
    """Vectors of first tokens are an example. Without a copy oneDNN takes 1 s instead of 0.5 ms."""

    def together(operand: torch.Tensor | None) -> bool:
        return operand is None or operand.is_contiguous() or operand.t().is_contiguous()

    def watched(*operands: torch.Tensor | None) -> torch.Tensor:
        assert all(map(together, operands))
        return onednn(*operands)

    onednn = linear_products._onednn
    monkeypatch.setattr(linear_products, "products_of", lambda *_: Products(*names))
    monkeypatch.setattr(linear_products, "_onednn", watched)
    monkeypatch.setitem(linear_products._OUTPUT, "onednn", watched)
    layer, hidden = torch.nn.Linear(40, 24), torch.randn(3, 5, 40, requires_grad=True)
    with QuickProducts():
        layer(hidden[:, 0]).sum().backward()
        layer(hidden.transpose(0, 1)).sum().backward()
    assert hidden.grad is not None and layer.weight.grad is not None


def test_embedding_measures_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(CHOICES, "quickest", lambda question, ways: asked.append(question) or PLAIN)
    layer, x = torch.nn.Linear(256, 512), torch.randn(64, 256)
    with QuickProducts(), torch.no_grad():
        layer(x)
    assert asked == ["float32 linear layer 256 to 512, 2048 rows, output"]
    with QuickProducts(), plain_products():
        assert not isinstance(quick_products(layer, torch.device("cpu")), QuickProducts)
