"""Tests of instance discrimination against loops in Python."""

import math
from typing import Any

import pytest
import torch
from hypothesis.strategies import integers, sampled_from
from torch import Tensor
from torch.nn.functional import normalize

from declutr.objectives.memories.instance_bank import (
    InstanceDiscrimination,
    estimated_log_normaliser,
    instance_loss,
    instance_nce_loss,
    proximal_loss,
)
from tests.objectives import laws
from tests.objectives.oracles import (
    assert_reductions,
    cosine,
    drawn,
    log_sum_exp,
    normal,
    squared_distance,
)

BATCHES: dict[str, Any] = {
    "n": integers(1, 6), "size": integers(1, 9), "tau": sampled_from([0.07, 1.0])
}  # fmt: skip


def batch(n: int, size: int, seed: int) -> tuple[Tensor, Tensor, Tensor, list[list[float]]]:
    """Draw features, ids and a bank, and compute the cosines of features and bank."""
    features, bank = normal(n, 3, seed=seed), normal(size, 3, seed=seed + 1)
    ids = torch.randint(size, (n,), generator=torch.Generator().manual_seed(seed))
    return features, ids, bank, [[cosine(feature, row) for row in bank] for feature in features]


@drawn(30, **BATCHES)
def test_softmax_equals_the_formula_in_loops(n: int, size: int, seed: int, tau: float) -> None:
    features, ids, bank, rows = batch(n, size, seed)
    terms = [
        log_sum_exp([value / tau for value in row]) - row[own] / tau
        for row, own in zip(rows, ids.tolist(), strict=True)
    ]
    assert_reductions(lambda reduction: instance_loss(features, ids, bank, tau, reduction), terms)


@drawn(30, **BATCHES, noise=integers(1, 6))
def test_nce_equals_the_formula_in_loops(
    n: int, size: int, seed: int, tau: float, noise: int
) -> None:
    features, ids, bank, rows = batch(n, size, seed)
    drawn = torch.randint(size, (noise,), generator=torch.Generator().manual_seed(seed + 1))
    seen = [math.exp(row[k] / tau) for row in rows for k in drawn.tolist()]
    normaliser = size * sum(seen) / len(seen)
    log_normaliser = estimated_log_normaliser(features, bank, drawn, tau)
    assert log_normaliser.item() == pytest.approx(math.log(normaliser))

    def h(value: float) -> float:
        p = math.exp(value / tau) / normaliser
        return p / (p + noise / size)

    terms = [
        -math.log(h(row[own])) - sum(math.log(1 - h(row[k])) for k in drawn.tolist())
        for row, own in zip(rows, ids.tolist(), strict=True)
    ]
    given = features, ids, bank, drawn, log_normaliser, tau
    assert_reductions(lambda reduction: instance_nce_loss(*given, reduction), terms)


@drawn(15, n=integers(1, 5))
def test_the_proximal_term_equals_the_formula_in_loops(n: int, seed: int) -> None:
    features, ids, bank, _ = batch(n, 4, seed)
    terms = [
        squared_distance(row / row.norm(), bank[i] / bank[i].norm())
        for row, i in zip(features, ids.tolist(), strict=True)
    ]
    assert_reductions(lambda reduction: proximal_loss(features, ids, bank, reduction), terms)
    objective = InstanceDiscrimination(4, 3, proximal=30.0).double().eval()
    expected = instance_loss(features, ids, objective.bank)
    expected = expected + 30 * proximal_loss(features, ids, objective.bank)
    assert objective(features, ids).item() == pytest.approx(expected.item())
    laws.assert_gradients(lambda x: proximal_loss(x, ids, bank), features)


def test_nce_has_the_gradient_of_the_softmax_with_much_noise() -> None:
    """Compare gradients with the true Z and every instance drawn often (Gutmann & Hyvärinen)."""
    features, bank, ids = normal(1, 3), normal(5, 3, seed=1), torch.tensor([2])
    features.requires_grad_()
    everyone = torch.arange(5)
    log_normaliser = estimated_log_normaliser(features, bank, everyone, 0.5)
    exact = torch.autograd.grad(instance_loss(features, ids, bank, 0.5), features)[0]
    often = everyone.repeat(4000)
    nce = instance_nce_loss(features, ids, bank, often, log_normaliser, 0.5)
    assert torch.allclose(torch.autograd.grad(nce, features)[0], exact, rtol=1e-3, atol=1e-5)


def test_gradients_and_zero_for_no_rows() -> None:
    ids, bank, noise = torch.tensor([0, 3, 3, 1, 2]), normal(6, 4, seed=3), torch.tensor([5, 0, 3])
    normaliser, features = torch.tensor(2.0), normal(5, 4).requires_grad_()
    laws.assert_gradients(lambda x: instance_nce_loss(x, ids, bank, noise, normaliser), features)
    laws.assert_zero_with_a_graph(instance_loss(features[:0], ids[:0], bank), features)


def test_the_bank_never_has_a_gradient() -> None:
    bank, features = normal(6, 4).requires_grad_(), normal(2, 4, seed=1).requires_grad_()
    ids, noise = torch.tensor([1, 4]), torch.tensor([0, 1])
    loss = instance_loss(features, ids, bank)
    loss = loss + instance_nce_loss(features, ids, bank, noise, torch.tensor(1.0))
    loss.backward()
    assert bank.grad is None and features.grad is not None and features.grad.any()


def test_noise_is_not_copied_for_each_row() -> None:
    features, bank = normal(64, 32, dtype=torch.float32), normal(500, 32, dtype=torch.float32)
    given = torch.arange(64), bank, torch.arange(256), torch.tensor(5.0)
    assert laws.largest_saved(lambda x: instance_nce_loss(x, *given), features) <= 64 * 256


@pytest.mark.parametrize("noise", [None, 4])
def test_a_step_uses_the_bank_as_it_was_and_updates_only_its_slots(noise: int | None) -> None:
    """Check also that the normaliser is estimated once, and finite before."""
    objective = InstanceDiscrimination(7, 4, momentum=0.25, noise=noise).double().train()
    assert all(value.isfinite().all() for value in objective.state_dict().values())
    before = objective.bank.clone()
    features, ids = normal(3, 4), torch.tensor([5, 0, 5])
    loss = objective(features, ids, torch.Generator().manual_seed(1))
    expected = instance_loss(features, ids, before)
    if noise is not None:
        drawn = torch.randint(7, (noise,), generator=torch.Generator().manual_seed(1))
        z = estimated_log_normaliser(features, before, drawn)
        expected = instance_nce_loss(features, ids, before, drawn, z)
    assert loss.item() == pytest.approx(expected.item())
    moved = before.clone()
    for row, slot in ((1, 0), (2, 5)):  # of the two rows of id 5 the last counts
        moved[slot] = normalize(0.25 * before[slot] + 0.75 * normalize(features[row], dim=0), dim=0)
    assert torch.allclose(objective.bank, moved)
    objective(normal(3, 4, seed=8), torch.arange(3))
    if noise is not None:
        assert objective.log_normaliser.item() == pytest.approx(z.item())
