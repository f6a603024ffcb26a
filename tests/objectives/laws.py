"""Assertions that hold for every objective: finite values, gradients, precision and memory.

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
    """Load the golden numbers of a family of objectives."""
    return json.loads((FIXTURES / f"golden_{family}.json").read_text())


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw normal noise, which is the same in every dtype but for rounding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def views(
    n: int, width: int = 4, seed: int = 0, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """Draw two views `(n, width)` that are correlated."""
    first = normal(n, width, seed=seed, dtype=dtype)
    return [first, first + normal(n, width, seed=seed + 1, dtype=dtype) / 2]


def hard_batches(n: int = 5, width: int = 4) -> dict[str, list[Tensor]]:
    """Return batches, by name, for which careless formulas are not finite."""
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
    """Check that values and gradients of hard batches are finite in float32 and float64.

    The first view must have a gradient. Batches named in `leave_out` are left out.
    """
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
    """Check that a loss is 0 and has gradients of 0, so that a training step still works."""
    assert value.shape == () and value.item() == 0
    gradients = torch.autograd.grad(value, inputs)
    assert not any(gradient.any() for gradient in gradients)


def assert_gradients(loss: Loss, *inputs: Tensor) -> None:
    """Compare gradients with finite differences in float64."""
    leaves = [view.double().clone().requires_grad_() for view in inputs]
    assert torch.autograd.gradcheck(loss, leaves)


def assert_full_precision(loss: Loss, *inputs: Tensor) -> None:
    """Check that bfloat16 rows under autocast have the loss of the same rows in float32."""
    halves = [view.bfloat16() for view in inputs]
    expected = loss(*[view.float() for view in halves])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(*halves)
        # Autocast would compute matrix products of these rows in bfloat16.
        same = loss(*[view.float() for view in halves])
    assert value.dtype == torch.float32
    assert torch.equal(value, expected) and torch.equal(same, expected)
    exact = loss(*[view.double() for view in inputs]).item()
    assert abs(value.item() - exact) < 0.05 * abs(exact) + 0.05


def largest_saved(loss: Loss, *inputs: Tensor) -> int:
    """Return the number of elements of the largest tensor that is kept for the backward pass."""
    sizes = [0]

    def seen(tensor: Tensor) -> Tensor:
        sizes.append(tensor.untyped_storage().nbytes() // tensor.itemsize)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        loss(*[view.clone().requires_grad_() for view in inputs]).backward()
    return max(sizes)


def permuted(n: int, seed: int, *inputs: Tensor) -> list[Tensor]:
    """Put the rows of all inputs into the same random order."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return [view[order] for view in inputs]


def rescaled(seed: int, *inputs: Tensor) -> list[Tensor]:
    """Multiply each row by a random positive number."""
    generator = torch.Generator().manual_seed(seed)
    return [
        view * (torch.rand(len(view), 1, generator=generator, dtype=view.dtype) * 50 + 0.01)
        for view in inputs
    ]
