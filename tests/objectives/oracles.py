"""Helpers of the tests of objectives: golden inputs, loops over floats, and common assertions."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

FIXTURES = Path(__file__).parent.parent / "fixtures"
GOLDEN = json.loads((FIXTURES / "golden_pairs.json").read_text())


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def golden_inputs(key: str, *names: str) -> list[Tensor]:
    """Return the inputs of a golden entry in float64, and labels as integers."""
    inputs = GOLDEN[key]["inputs"]
    return [
        torch.tensor(inputs[name]).long() if name == "labels" else doubles(inputs[name])
        for name in names
    ]


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def some_labels(rows: int, classes: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(classes, (rows,), generator=generator)


def dot(x: Tensor, y: Tensor) -> float:
    return sum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))


def cosine(x: Tensor, y: Tensor) -> float:
    return dot(x, y) / math.sqrt(dot(x, x) * dot(y, y))


def squared_distance(x: Tensor, y: Tensor) -> float:
    return sum((a - b) ** 2 for a, b in zip(x.tolist(), y.tolist(), strict=True))


def distance(x: Tensor, y: Tensor) -> float:
    return math.sqrt(squared_distance(x, y))


def log_sum_exp(values: list[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def mean(values: list[float]) -> float:
    """Return the mean of values, or 0 if there are none, as for a loss without terms."""
    return sum(values) / len(values) if values else 0.0


def others_with_label(labels: Tensor, i: int, same: bool) -> list[int]:
    return [j for j in range(len(labels)) if j != i and (labels[j] == labels[i]).item() == same]


# ------------------------------------------------------------------------------------------- laws

HARD = ("duplicates", "equal", "zeros", "opposite", "huge", "tiny", "one", "two")


def hard_views(kind: str) -> tuple[Tensor, Tensor]:
    """Return two views in float32 for which careless losses are not finite."""
    x, y = normal(6, 4).float(), normal(6, 4, seed=1).float()
    return {
        "duplicates": (x[[0, 0, 0, 1, 1, 2]], x[[0, 0, 1, 1, 2, 2]]),
        "equal": (torch.ones(6, 4), torch.ones(6, 4)),
        "zeros": (x * 0, y * 0),
        "opposite": (x, -x),
        "huge": (x * 1e4, y * 1e4),
        "tiny": (x * 1e-15, y * 1e-15),
        "one": (x[:1], y[:1]),
        "two": (x[:2], y[:2]),
    }[kind]


Loss = Callable[[Tensor, Tensor], Tensor]


def assert_finite(loss: Loss, kind: str) -> None:
    first, second = (view.clone().requires_grad_() for view in hard_views(kind))
    value = loss(first, second)
    value.backward()
    assert value.shape == () and value.isfinite()
    for view in (first, second):
        assert view.grad is not None and view.grad.isfinite().all()


def assert_order_means_nothing(loss: Loss, seed: int) -> None:
    first, second = normal(5, 3, seed=seed), normal(5, 3, seed=seed + 1)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(seed))
    expected = loss(first, second).item()
    assert loss(first[order], second[order]).item() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def assert_gradient(loss: Loss, pairs: int) -> None:
    """Run `gradcheck` in float64 at a point where the loss is differentiable."""
    views = [normal(pairs, 3, seed=seed).requires_grad_() for seed in (10, 11)]
    assert torch.autograd.gradcheck(loss, views)


def assert_stable_under_autocast(loss: Loss) -> None:
    """Check that autocast changes neither the loss of float32 rows nor that of bfloat16 rows."""
    first, second = normal(12, 16, seed=3).float(), normal(12, 16, seed=4).float()
    expected = loss(first, second).item()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(first, second).item() == expected
        narrow = first.bfloat16().requires_grad_(), second.bfloat16().requires_grad_()
        value = loss(*narrow)
    value.backward()
    assert value.dtype == torch.float32
    assert value.item() == loss(*(view.detach().float() for view in narrow)).item()
    assert value.item() == pytest.approx(expected, rel=0.1, abs=0.05)
    assert all(view.grad.isfinite().all() for view in narrow)


@contextmanager
def largest_saved() -> Iterator[list[int]]:
    """Yield a list of the number of elements of the largest tensor kept for the backward pass."""
    largest = [0]

    def keep(tensor: Tensor) -> Tensor:
        largest[0] = max(largest[0], tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield largest


def assert_not_cubic(loss: Loss) -> None:
    """Check that no tensor kept for 512 pairs is larger than two matrices of all 1024 rows."""
    first, second = (normal(512, 8, seed=seed).float().requires_grad_() for seed in (0, 1))
    with largest_saved() as largest:
        value = loss(first, second)
    value.backward()
    assert first.grad.isfinite().all()
    assert 0 < largest[0] <= 2 * 1024**2
