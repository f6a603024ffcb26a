"""What objectives are compared with: golden numbers, drawn tensors, and loops over floats."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

FIXTURES = Path(__file__).parents[1] / "fixtures"


def drawn(examples: int, **strategies: Any) -> Callable:
    """Run a test with `examples` draws of its arguments, and of a `seed`."""

    def decorated(test: Callable) -> Callable:
        test = given(seed=st.integers(0, 10**6), **strategies)(test)
        return settings(max_examples=examples, deadline=None)(test)

    return decorated


def doubles(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Golden:
    """An entry of golden numbers of a family of objectives: what is given, and values of it."""

    def __init__(self, family: str, name: str) -> None:
        entry = json.loads((FIXTURES / f"golden_{family}.json").read_text())[name]
        self.given, self.values, self.params = (
            entry.get(part) for part in ("inputs", "values", "params")
        )

    def inputs(self, *names: str) -> list[Tensor]:
        """Return inputs in float64, and labels as integers."""
        return [
            torch.tensor(self.given[name]).long() if name == "labels" else doubles(self.given[name])
            for name in names
        ]

    def check(self, found: dict[str, Any]) -> None:
        """Compare numbers with the golden values of the same names, to 1e-9."""
        values = {name: self.values[name] for name in found}
        numbers = {name: float(value) for name, value in found.items()}
        assert numbers == pytest.approx(values, abs=1e-9)


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


def some_labels(rows: int, classes: int = 3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(classes, (rows,), generator=generator)


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


def dot(x: Tensor, y: Tensor) -> float:
    return sum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))


def cosine(x: Tensor, y: Tensor) -> float:
    return dot(x, y) / math.sqrt(dot(x, x) * dot(y, y))


def squared_distance(x: Tensor, y: Tensor) -> float:
    return sum((a - b) ** 2 for a, b in zip(x.tolist(), y.tolist(), strict=True))


def distance(x: Tensor, y: Tensor) -> float:
    return math.sqrt(squared_distance(x, y))


def softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def log_sum_exp(values: list[float]) -> float:
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def mean(values: list[float]) -> float:
    """Return the mean of values, or 0 if there are none, as for a loss without terms."""
    return sum(values) / len(values) if values else 0.0


def assert_reductions(
    loss: Callable[[str], Tensor], terms: list[float], reductions: str = "none mean sum"
) -> None:
    """Compare a loss, given its reduction, with terms from a loop."""
    expected = {"none": terms, "mean": mean(terms), "sum": sum(terms)}
    for reduction in reductions.split():
        found = loss(reduction).tolist()
        assert found == pytest.approx(expected[reduction], rel=1e-8, abs=1e-9), reduction


def others_with_label(labels: Tensor, i: int, same: bool) -> list[int]:
    return [j for j in range(len(labels)) if j != i and (labels[j] == labels[i]).item() == same]
