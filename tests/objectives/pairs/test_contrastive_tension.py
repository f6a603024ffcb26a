"""Tests of contrastive tension against loops and numbers by hand."""

import math

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from declutr.objectives import ContrastiveTension, tension_loss
from tests.objectives.oracles import assert_reductions, dot, normal, softplus, views


@pytest.mark.parametrize(("n", "negatives"), [(16, 7), (6, 1), (8, 3), (1, 7)])
def test_equals_loops(n: int, negatives: int) -> None:
    x, y = views(n)
    terms = []
    for group in range(0, n, negatives + 1):
        for place in range(min(negatives + 1, n - group)):
            z = dot(x[group + place], y[group + place])
            terms.append(softplus(-z) if place == 0 else softplus(z))
    assert_reductions(lambda reduction: tension_loss(x, y, negatives, reduction), terms)
    assert ContrastiveTension(negatives)(x, y).item() == pytest.approx(sum(terms) / n)


def test_equals_the_binary_cross_entropy_of_the_public_code() -> None:
    """Labels of one pair in eight, and the dot products as logits."""
    x, y = normal(16, 5), normal(16, 5, seed=1)
    labels = torch.tensor(([1.0] + [0.0] * 7) * 2, dtype=torch.float64)
    expected = torch.nn.BCEWithLogitsLoss()((x * y).sum(-1), labels)
    assert tension_loss(x, y).item() == pytest.approx(expected.item(), abs=1e-12)


def test_numbers_by_hand() -> None:
    """A pair of one sentence at 2, and of two at right angles: (log(1 + e^-2) + log 2) / 2."""
    x, y = torch.tensor([[1.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    expected = (math.log1p(math.exp(-2)) + math.log(2)) / 2
    assert tension_loss(x, y, negatives=1).item() == pytest.approx(expected)


def test_what_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="negatives must be above 0, got 0"):
        ContrastiveTension(negatives=0)
    with pytest.raises(ValueError, match="must both be"):
        tension_loss(torch.ones(2, 3), torch.ones(3, 3))
