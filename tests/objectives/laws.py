"""What holds for every objective: finite values, gradients, float32 under autocast, small memory.

A loss here is a function of tensors that returns a scalar.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FIXTURES = Path(__file__).parent.parent / "fixtures"

Loss = Callable[..., Tensor]


def golden(family: str) -> dict[str, Any]:
    """The golden numbers of a family of objectives."""
    return json.loads((FIXTURES / f"golden_{family}.json").read_text())


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal deviates; the same ones, rounded, in every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def views(
    n: int, width: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Two views `(n, width)` that have something in common."""
    first = normal(n, width, seed=seed, dtype=dtype)
    return [first, first + normal(n, width, seed=seed + 1, dtype=dtype) / 2]


def hard_batches(n: int = 5, width: int = 4) -> dict[str, list[Tensor]]:
    """Batches at which formulas break."""
    first, second = views(n, width)
    same = first[:1].expand(n, width)
    return {
        "random": [first, second],
        "two rows": [first[:2], second[:2]],
        "duplicates": [first[[0, 0, 1, 1, 2]], second[[0, 0, 0, 1, 1]]],
        "all equal": [same, same],
        "perfect": [first, first],
        "opposite": [first, -first],
        "zeros": [0 * first, 0 * second],
        "one zero": [torch.cat([0 * first[:1], first[1:]]), second],
        "huge": [first * 1e12, second * 1e12],
        "tiny": [first * 1e-12, second * 1e-12],
    }


def assert_finite_where_it_is_hard(loss: Loss, *leave_out: str) -> None:
    """In float32 and float64, values and gradients; the first view must have one."""
    for name, batch in hard_batches().items():
        for dtype in (torch.float32, torch.float64):
            if name in leave_out:
                continue
            inputs = [view.to(dtype, copy=True).requires_grad_() for view in batch]
            value = loss(*inputs)
            value.backward()
            assert value.shape == () and value.isfinite(), (name, dtype, value)
            assert inputs[0].grad is not None, name
            for view in inputs:
                assert view.grad is None or view.grad.isfinite().all(), (name, dtype)


def assert_zero_with_a_graph(value: Tensor, *inputs: Tensor) -> None:
    """0 whose gradients are 0, so that a training step goes through."""
    assert value.shape == () and value.item() == 0
    gradients = torch.autograd.grad(value, inputs)
    assert not any(gradient.any() for gradient in gradients)


def assert_gradients(loss: Loss, *inputs: Tensor) -> None:
    """Against differences, in float64."""
    leaves = [view.double().clone().requires_grad_() for view in inputs]
    assert torch.autograd.gradcheck(loss, leaves)


def assert_full_precision(loss: Loss, *inputs: Tensor) -> None:
    """bfloat16 rows under autocast give what the same rows give in float32, without autocast."""
    halves = [view.bfloat16() for view in inputs]
    expected = loss(*[view.float() for view in halves])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(*halves)
        same = loss(*[view.float() for view in halves])  # autocast would lower a matrix product
    assert value.dtype == torch.float32
    assert torch.equal(value, expected) and torch.equal(same, expected)
    exact = loss(*[view.double() for view in inputs]).item()
    assert abs(value.item() - exact) < 0.05 * abs(exact) + 0.05


def largest_saved(loss: Loss, *inputs: Tensor) -> int:
    """Elements of the largest tensor that the backward pass keeps."""
    sizes = [0]

    def seen(tensor: Tensor) -> Tensor:
        sizes.append(tensor.untyped_storage().nbytes() // tensor.itemsize)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        loss(*[view.clone().requires_grad_() for view in inputs]).backward()
    return max(sizes)


def permuted(n: int, seed: int, *inputs: Tensor) -> list[Tensor]:
    """The same rows in another order."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [view[order] for view in inputs]


def rescaled(seed: int, *inputs: Tensor) -> list[Tensor]:
    """Each row times a positive number of its own."""
    generator = torch.Generator().manual_seed(seed)
    return [
        view * (torch.rand(len(view), 1, generator=generator, dtype=view.dtype) * 50 + 0.01)
        for view in inputs
    ]
