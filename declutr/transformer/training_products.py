"""Training of linear layers in float32 on a CPU by the quickest kernel for each product.

A linear layer computes three products: its output, the gradient of its input and the gradient of
its weight. torch computes all of them by its BLAS library, most often MKL. oneDNN's operators for
linear layers compute them with the same accuracy. The operands of a gradient can be passed to them
in several ways, and the quickest depends on the shape.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

from declutr.system.distributed import of_all_processes, process_rank
from declutr.system.host_memory import HEAP
from declutr.system.kernel_choices import CHOICES, PLAIN, Ways

LEAST_WEIGHTS = 1 << 16
"""The least number of weights of a layer that is measured; smaller ones are left to torch."""

MOST_WEIGHTS = 1 << 24
"""The most weights that are timed; of wider layers, such as a head, only some outputs are timed."""

# Numbers of rows to time with: _ROWS_OF_LARGE for layers with more than _LARGE weights. The number
# decides about the quickest way to the gradient of a weight, and batches have thousands of rows.
_ROWS, _ROWS_OF_WEIGHT_GRADIENT, _ROWS_OF_LARGE, _LARGE = 2048, 4096, 128, 1 << 22

# Rows of which the gradient of a weight is computed at once. A sum over 6,449 rows takes 3 to 10 %
# longer for three layers, and is less exact. oneDNN's own operator divides the sum itself; its
# bound is for the memory of the copies.
_ROWS_IN_SUM, _ROWS_REORDERED = 1024, 4096

# Rows of a matrix that are transposed at once: a multiple of _ROWS_AT_ONCE, which of 8 to 256 took
# least in nearly all of 14 shapes, with one thread and two. torch gives a thread at least _SHARE
# values. The time per value is the same up to 1,024 rows of 768 values, or 256 of 3,072.
_ROWS_AT_ONCE, _SHARE = 64, 1 << 15


class Products(NamedTuple):
    """The names of the quickest ways to compute the three products of a linear layer."""

    output: str
    input_gradient: str
    weight_gradient: str


_PLAIN = Products(PLAIN, PLAIN, PLAIN)
_plain: ContextVar[bool] = ContextVar("plain", default=False)


def quick_rows(rows: int, weights: int) -> int:
    """Return the number of rows to compute, of which the first `rows` are needed.

    It is a multiple of 8 for a layer with so many weights that oneDNN may compute it. With some
    other numbers of rows, such as 407, oneDNN takes up to 1.8 times as long.
    """
    return rows if weights < LEAST_WEIGHTS else -(-rows // 8) * 8


def plain_output(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return a linear layer's output `(r, n)` by torch's own product, even in `QuickProducts`.

    # Parameters

    rows : `(r, k)`.
    weight : `(n, k)`.
    bias : `(n,)` or `None`.
    """
    return rows @ weight.t() if bias is None else torch.addmm(bias, rows, weight.t())


def _onednn(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")


Gradients = tuple[Tensor, Tensor | None]
"""The gradients of a weight and of its bias, which is `None` if it is not asked for."""


def _bias_gradient(gradient: Tensor, to_bias: bool) -> Tensor | None:
    return gradient.sum(dim=0) if to_bias else None


def _plain_gradients(gradient: Tensor, rows: Tensor, to_bias: bool) -> Gradients:
    return gradient.t() @ rows, _bias_gradient(gradient, to_bias)


def _transposing_gradients(
    gradient: Tensor,
    rows: Tensor,
    to_bias: bool,
    copies_gradient: bool = False,
    copies_rows: bool = False,
) -> Gradients:
    """Compute the weight's by oneDNN's operator for outputs, as a sum over some rows at a time."""
    total: Tensor | None = None
    parts = -(-len(rows) // _ROWS_IN_SUM)
    at_once = quick_rows(-(-len(rows) // parts), LEAST_WEIGHTS)
    for g, x in zip(gradient.split(at_once), rows.split(at_once), strict=True):
        left = _transposed(g) if copies_gradient else g.t()
        right = _transposed(x) if copies_rows else x.t()
        if total is None:
            total = _onednn(left, right)
        else:
            total = torch.ops.mkldnn._linear_pointwise.binary(left, total, right, None, "add")
    assert total is not None
    return total, _bias_gradient(gradient, to_bias)


def _reordering_gradients(gradient: Tensor, rows: Tensor, to_bias: bool) -> Gradients:
    """Compute both by oneDNN's operator for them, which reads tensors in oneDNN's layout.

    With two threads and 6,449 rows it takes 85 to 96 % of the time of the other ways by oneDNN,
    though it copies both operands. With less than 2,000 rows, or one thread, it may take longer.
    """
    found: list[Tensor] = []
    for part in zip(gradient.split(_ROWS_REORDERED), rows.split(_ROWS_REORDERED), strict=True):
        left, right = (each.to_mkldnn() for each in part)
        # Of the weight it reads no more than dtype and device, which are those of the rows.
        new = torch.ops.aten.mkldnn_linear_backward_weights(left, right, rows, to_bias)
        dense = [each.to_dense() if each.is_mkldnn else each for each in new[: 1 + to_bias]]
        found = [old.add_(each) for old, each in zip(found, dense, strict=True)] if found else dense
    return found[0], found[1] if to_bias else None


def _swapped_gradients(gradient: Tensor, rows: Tensor, to_bias: bool) -> Gradients:
    """Compute the transposed weight's as `_reordering_gradients`, for layers with fewer outputs."""
    transposed, _ = _reordering_gradients(rows, gradient, to_bias=False)
    return _transposed(transposed), _bias_gradient(gradient, to_bias)


def _transposed(matrix: Tensor) -> Tensor:
    """Return `matrix.t().contiguous()`, copied by all threads.

    torch copies a whole transposed matrix in one thread. Some rows at a time are copied by all
    threads and stay in their caches. From 1,000 rows on, two threads take a quarter to three
    quarters of the time, and one thread up to as long.
    """
    transposed = matrix.new_empty(matrix.size(1), matrix.size(0))
    shares = torch.get_num_threads() * _SHARE // (matrix.size(1) * _ROWS_AT_ONCE)
    at_once = max(1, shares) * _ROWS_AT_ONCE
    for begin in range(0, matrix.size(0), at_once):
        rows = slice(begin, begin + at_once)
        transposed[:, rows].copy_(matrix[rows].t())
    return transposed


# Ways to compute the three products, by name. Their operands are rows x (M, K), weight w (N, K),
# bias (N,) and the gradient of the output g (M, N). "Copied": an operand is made contiguous first.
_OUTPUT: dict[str, Callable[..., Tensor]] = {PLAIN: plain_output, "onednn": _onednn}
_INPUT_GRADIENT: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    PLAIN: lambda g, w: g @ w,
    "onednn": lambda g, w: _onednn(g, w.t()),
    "onednn, copied weight": lambda g, w: _onednn(g, _transposed(w)),
}
_WEIGHT_GRADIENT: dict[str, Callable[[Tensor, Tensor, bool], Gradients]] = {
    PLAIN: _plain_gradients,
    "onednn": _transposing_gradients,
    "onednn, copied gradient": partial(_transposing_gradients, copies_gradient=True),
    "onednn, copied input": partial(_transposing_gradients, copies_rows=True),
    "onednn, both copied": partial(_transposing_gradients, copies_gradient=True, copies_rows=True),
    "onednn, reordered": _reordering_gradients,
    "onednn, reordered and swapped": _swapped_gradients,
}


class QuickProducts(TorchFunctionMode):
    """A context in which linear layers in float32 on a CPU use the quickest kernels.

    Weights are not changed. Layers in other dtypes (autocast), on other devices, in compiled code
    and with few weights are left to torch. Results differ from torch's own by rounding.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is linear and not torch.compiler.is_compiling():
            return _linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def runs_compiled(module: torch.nn.Module) -> bool:
    """Return whether `torch.compile` has compiled the module in place."""
    return getattr(module, "_compiled_call_impl", None) is not None


def quick_products(transformer: torch.nn.Module, device: torch.device) -> AbstractContextManager:
    """Return `QuickProducts` for an uncompiled transformer on a CPU, else a context without effect.

    Within `plain_products`, the context has no effect either.
    """
    left_to_torch = device.type != "cpu" or runs_compiled(transformer) or _plain.get()
    return contextlib.nullcontext() if left_to_torch else QuickProducts()


@contextmanager
def plain_products() -> Iterator[None]:
    """Make `quick_products` leave everything to torch, and measure nothing, within this context."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def settle_products(model: torch.nn.Module) -> None:
    """Choose the quickest kernels for all linear layers of a model before it trains on a CPU.

    With several processes the first one chooses for all of them, so all must call this together.
    """
    if process_rank() == 0:
        for part in model.modules():
            if type(part) is not torch.nn.Linear or part.weight.dtype != torch.float32:
                continue
            # Checked by the layer's attributes, because the weight itself may be sharded.
            if part.in_features * part.out_features >= LEAST_WEIGHTS and _has_onednn():
                products_of(part.in_features, part.out_features)
    first = of_all_processes((CHOICES.taken(), torch.get_num_threads()))[0]
    CHOICES.adopt(*first)


def products_of(features: int, outputs: int) -> Products:
    """Return the quickest ways to compute a layer of `features` inputs and `outputs` outputs."""

    def input_gradients(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Ways:
        return {name: partial(way, g, w) for name, way in _INPUT_GRADIENT.items()}

    def weight_gradients(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Ways:
        return {name: partial(way, g, x, True) for name, way in _WEIGHT_GRADIENT.items()}

    both = "gradients of weight and bias"
    return Products(
        output_of(features, outputs),
        _quickest(features, outputs, "input gradient", input_gradients),
        _quickest(features, outputs, both, weight_gradients, _ROWS_OF_WEIGHT_GRADIENT),
    )


def output_of(features: int, outputs: int) -> str:
    """Return the quickest way to compute only the output; the arguments are as of `products_of`."""

    def ways(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> Ways:
        return {name: partial(way, x, w, b) for name, way in _OUTPUT.items()}

    return _quickest(features, outputs, "output", ways)


def _quickest(
    features: int, outputs: int, product: str, ways: Callable[..., Ways], rows: int = _ROWS
) -> str:
    """Return the quickest of `ways`, which get rows, weight, bias and the output's gradient."""
    if features * outputs > _LARGE:
        rows = _ROWS_OF_LARGE

    def ready() -> Ways:
        HEAP.settle()  # as in training, because some ways need more memory than others
        some = min(outputs, max(1, MOST_WEIGHTS // features))
        shapes = (rows, features), (some, features), (some,), (rows, some)
        return ways(*(torch.full(s, 0.01, dtype=torch.float32, device="cpu") for s in shapes))

    layer = f"float32 linear layer {features} to {outputs}, {rows} rows"
    return CHOICES.quickest(f"{layer}, {product}", ready)


def _may_be_quicker(weight: Any) -> bool:
    """Return whether a faster kernel than torch's own may be used with this weight."""
    return (
        type(weight) in (Tensor, torch.nn.Parameter)  # not a sharded weight
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and weight.layout == torch.strided
        and weight.numel() >= LEAST_WEIGHTS
        and weight.is_contiguous()
        and _has_onednn()
    )


@cache
def _has_onednn() -> bool:
    """Return whether this build of torch has oneDNN's operator, with full precision in float32."""
    modes = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
    exact = all(os.environ.get(mode, "STRICT").upper() == "STRICT" for mode in modes)
    has = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return exact and has


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if (
        input.dtype != torch.float32
        or input.numel() == 0
        or torch.is_autocast_enabled("cpu")
        or not torch.backends.mkldnn.enabled
        or torch.get_float32_matmul_precision() != "highest"
        or not _may_be_quicker(weight)
        or torch._C._are_functorch_transforms_active()
    ):
        return linear(input, weight, bias)
    # For operands that are not contiguous, oneDNN uses a kernel that is a thousand times slower.
    rows = input.reshape(-1, input.size(-1)).contiguous()
    learns = any(t is not None and t.requires_grad for t in (input, weight, bias))
    if torch.is_grad_enabled() and learns:
        products = products_of(weight.size(1), weight.size(0))
        if products == _PLAIN:
            return linear(input, weight, bias)
        output = _Linear.apply(rows, weight, bias, products)
    else:
        output = _way(_OUTPUT, output_of(weight.size(1), weight.size(0)))(rows, weight, bias)
    return output.view(*input.shape[:-1], -1)


def _way(ways: dict[str, Callable[..., Any]], name: str) -> Callable[..., Any]:
    """Return a way by name, or torch's own if the name was kept by a release with other ways."""
    return ways.get(name, ways[PLAIN])


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None, products: Products
    ) -> Tensor:
        to_rows, to_weight, _, _ = ctx.needs_input_grad
        ctx.save_for_backward(rows if to_weight else None, weight if to_rows else None)
        ctx.products = products
        return _way(_OUTPUT, products.output)(rows, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        products = ctx.products
        if torch.is_grad_enabled():  # for double backward, as oneDNN's operator has no derivative
            products = _PLAIN
        to_rows, to_weight, to_bias, _ = ctx.needs_input_grad
        gradient = gradient.contiguous()
        way = _way(_INPUT_GRADIENT, products.input_gradient)
        of_rows = way(gradient, weight) if to_rows else None
        if not to_weight:
            return of_rows, None, _bias_gradient(gradient, to_bias), None
        ways = _way(_WEIGHT_GRADIENT, products.weight_gradient)
        return of_rows, *ways(gradient, rows, to_bias), None
