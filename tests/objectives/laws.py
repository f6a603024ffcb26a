"""Assertions about objectives: finite values, gradients, precision and memory.

A loss here is a function of tensors that returns a scalar.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from tests.objectives.oracles import views

Loss = Callable[..., Tensor]


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


def assert_finite(loss: Loss) -> None:
    """Check that values and gradients of hard batches are finite in float32 and float64.

    The first view must have a gradient.
    """
    for name, batch in hard_batches().items():
        for dtype in (torch.float32, torch.float64):
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
    leaves = [view.detach().double().clone().requires_grad_() for view in inputs]
    assert torch.autograd.gradcheck(loss, leaves)


def assert_same_gradients(one: Tensor, other: Tensor, *inputs: Tensor, rtol: float = 1e-9) -> None:
    """Compare two scalars that were computed from the same inputs, and their gradients."""
    both = ([x, *torch.autograd.grad(x, inputs, retain_graph=True)] for x in (one, other))
    for mine, theirs in zip(*both, strict=True):
        assert torch.allclose(mine, theirs, rtol=rtol, atol=1e-12)


def assert_full_precision(loss: Loss, *inputs: Tensor, exact: Loss | None = None) -> None:
    """Check that bfloat16 rows under autocast have the loss of the same rows in float32.

    It must be near the loss in float64, which `exact` computes.
    """
    halves = [view.bfloat16().requires_grad_() for view in inputs]
    expected = loss(*[view.float() for view in halves])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(*halves)
        # Autocast would compute matrix products of these rows in bfloat16.
        same = loss(*[view.float() for view in halves])
    assert value.dtype == torch.float32
    assert torch.equal(value, expected) and torch.equal(same, expected)
    found = (exact or loss)(*[view.double() for view in inputs]).item()
    assert abs(value.item() - found) < 0.05 * abs(found) + 0.05
    value.backward()
    assert all(view.grad is None or view.grad.isfinite().all() for view in halves)


def largest_saved(loss: Loss, *inputs: Tensor) -> int:
    """Return the number of elements of the largest tensor that is kept for the backward pass."""
    sizes = [0]

    def seen(tensor: Tensor) -> Tensor:
        sizes.append(tensor.untyped_storage().nbytes() // tensor.itemsize)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda tensor: tensor):
        loss(*[view.clone().requires_grad_() for view in inputs]).backward()
    return max(sizes)
