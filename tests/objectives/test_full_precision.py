"""The precision a loss sees, inside autocast and out of it."""

import pytest
import torch

from declutr.objectives.full_precision import full_precision


@full_precision
def product(x: torch.Tensor, y: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """The matrix of dot products."""
    return scale * x @ y.T


@pytest.mark.parametrize("autocast", [True, False])
@pytest.mark.parametrize(
    "given, seen",
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_float32_at_least(given: torch.dtype, seen: torch.dtype, autocast: bool) -> None:
    x, y = torch.randn(3, 4).to(given).requires_grad_(), torch.randn(2, 4).to(given)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        result = product(x, y=y, scale=2.0)
        assert torch.is_autocast_enabled("cpu") == autocast  # as it was
    assert result.dtype == seen
    assert torch.equal(result, 2 * x.to(seen) @ y.to(seen).T)
    result.sum().backward()
    assert x.grad is not None and x.grad.dtype == given


def test_other_arguments_pass_as_they_are() -> None:
    @full_precision
    def kept(labels: torch.Tensor, names: list[str]) -> tuple[torch.Tensor, list[str]]:
        return labels, names

    labels, names = torch.arange(3), ["a"]
    assert kept(labels, names)[0] is labels and kept(labels, names)[1] is names
    assert product.__name__ == "product" and product.__doc__ == "The matrix of dot products."
