"""Tests of instance discrimination against loops in Python."""

import math
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import Objective
from declutr.objectives.memories.instance_bank import (
    InstanceDiscrimination,
    estimated_log_normaliser,
    instance_loss,
    instance_nce_loss,
)
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    assert_zero_with_a_graph,
    largest_saved,
    normal,
    permuted,
    rescaled,
)
from tests.objectives.waits import NeverWaits


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def cosines(features: Tensor, bank: Tensor) -> list[list[float]]:
    rows = [unit(row).tolist() for row in bank]
    return [
        [sum(a * b for a, b in zip(unit(feature).tolist(), row, strict=True)) for row in rows]
        for feature in features
    ]


batches = {
    "n": st.integers(1, 6),
    "size": st.integers(1, 9),
    "seed": st.integers(0, 10**6),
    "tau": st.sampled_from([0.07, 1.0]),
}


@settings(max_examples=30, deadline=None)
@given(**batches)
def test_softmax_equals_the_formula_in_loops(n: int, size: int, seed: int, tau: float) -> None:
    features, bank = normal(n, 3, seed=seed), normal(size, 3, seed=seed + 1)
    ids = torch.randint(size, (n,), generator=torch.Generator().manual_seed(seed))
    terms = []
    for row, own in zip(cosines(features, bank), ids.tolist(), strict=True):
        total = math.fsum(math.exp(value / tau) for value in row)
        terms.append(-math.log(math.exp(row[own] / tau) / total))
    found = instance_loss(features, ids, bank, tau, "none")
    assert found.tolist() == pytest.approx(terms, rel=1e-8, abs=1e-9)
    assert instance_loss(features, ids, bank, tau).item() == pytest.approx(sum(terms) / n, abs=1e-9)
    (moved,) = rescaled(seed, features)
    order = permuted(n, seed, moved, ids)
    changed = instance_loss(*order, bank, tau, "sum").item()
    assert changed == pytest.approx(sum(terms), rel=1e-8, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(**batches, noise=st.integers(1, 6))
def test_nce_equals_the_formula_in_loops(
    n: int, size: int, seed: int, tau: float, noise: int
) -> None:
    features, bank = normal(n, 3, seed=seed), normal(size, 3, seed=seed + 1)
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(size, (n,), generator=generator)
    drawn = torch.randint(size, (noise,), generator=generator)
    rows = cosines(features, bank)
    seen = [math.exp(row[k] / tau) for row in rows for k in drawn.tolist()]
    normaliser = size * sum(seen) / len(seen)
    log_normaliser = estimated_log_normaliser(features, bank, drawn, tau)
    assert log_normaliser.item() == pytest.approx(math.log(normaliser))

    def h(cosine: float) -> float:
        p = math.exp(cosine / tau) / normaliser
        return p / (p + noise / size)

    terms = [
        -math.log(h(row[own])) - sum(math.log(1 - h(row[k])) for k in drawn.tolist())
        for row, own in zip(rows, ids.tolist(), strict=True)
    ]
    found = instance_nce_loss(features, ids, bank, drawn, log_normaliser, tau, "none")
    assert found.tolist() == pytest.approx(terms, rel=1e-8)


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


def test_gradients_and_hard_batches() -> None:
    ids, bank, noise = torch.tensor([0, 3, 3, 1, 2]), normal(6, 4, seed=3), torch.tensor([5, 0, 3])
    z = torch.tensor(2.0)
    assert_gradients(lambda x: instance_loss(x, ids, bank), normal(5, 4))
    assert_gradients(lambda x: instance_nce_loss(x, ids, bank, noise, z), normal(5, 4))
    assert_finite_where_it_is_hard(lambda x, _: instance_loss(x, ids[: len(x)], bank))
    assert_finite_where_it_is_hard(lambda x, _: instance_nce_loss(x, ids[: len(x)], bank, noise, z))
    assert_full_precision(lambda x: instance_loss(x, ids, bank), normal(5, 4))
    assert_full_precision(lambda x: instance_nce_loss(x, ids, bank, noise, z), normal(5, 4))
    features = normal(5, 4).requires_grad_()
    assert_zero_with_a_graph(instance_loss(features[:0], ids[:0], bank), features)


def test_the_bank_never_has_a_gradient() -> None:
    bank, features = normal(6, 4).requires_grad_(), normal(2, 4, seed=1).requires_grad_()
    ids, noise = torch.tensor([1, 4]), torch.tensor([0, 1])
    loss = instance_loss(features, ids, bank)
    loss = loss + instance_nce_loss(features, ids, bank, noise, torch.tensor(1.0))
    loss.backward()
    assert bank.grad is None and features.grad is not None and features.grad.any()


def test_noise_is_not_copied_for_each_row() -> None:
    features, bank = normal(64, 32, dtype=torch.float32), normal(500, 32, dtype=torch.float32)
    noise = torch.arange(256)
    saved = largest_saved(
        lambda x: instance_nce_loss(x, torch.arange(64), bank, noise, torch.tensor(5.0)), features
    )
    assert saved <= 64 * 256


# -------------------------------------------------------------------------------------- the bank


@pytest.mark.parametrize("noise", [None, 4])
def test_a_step_uses_the_bank_as_it_was_and_updates_only_its_slots(noise: int | None) -> None:
    objective = InstanceDiscrimination(7, 4, momentum=0.25, noise=noise).double().train()
    before = objective.bank.clone()
    features, ids = normal(3, 4), torch.tensor([5, 0, 5])
    generator = torch.Generator().manual_seed(1)
    loss = objective(features, ids, generator)
    if noise is None:
        expected = instance_loss(features, ids, before)
    else:
        drawn = torch.randint(7, (noise,), generator=torch.Generator().manual_seed(1))
        z = estimated_log_normaliser(features, before, drawn)
        expected = instance_nce_loss(features, ids, before, drawn, z)
        assert objective.log_normaliser.item() == pytest.approx(z.item())
    assert loss.item() == pytest.approx(expected.item())
    moved = before.clone()
    for row, slot in ((1, 0), (2, 5)):  # of the two rows of id 5 the last counts
        moved[slot] = unit(0.25 * before[slot] + 0.75 * unit(features[row]))
    assert torch.allclose(objective.bank, moved)


def test_the_normaliser_is_estimated_once() -> None:
    objective = InstanceDiscrimination(7, 4, noise=3).train()
    assert objective.log_normaliser.isfinite()  # A checkpoint with another value is refused.
    objective(normal(3, 4, dtype=torch.float32), torch.arange(3))
    first = objective.log_normaliser.item()
    objective(normal(3, 4, seed=8, dtype=torch.float32), torch.arange(3))
    assert objective.log_normaliser.item() == first and math.isfinite(first)


@pytest.mark.parametrize("noise", [None, 4])
@pytest.mark.parametrize("steps", [0, 2])
def test_a_resumed_run_continues_exactly(tmp_path: Path, noise: int | None, steps: int) -> None:
    def fresh() -> InstanceDiscrimination:
        return InstanceDiscrimination(9, 4, noise=noise).train()

    one, ids = fresh(), torch.tensor([1, 8, 3])
    for step in range(steps):
        one(normal(3, 4, seed=step, dtype=torch.float32), ids + step - 1)
    torch.save(one.state_dict(), tmp_path / "state.th")
    other = fresh()
    other.load_state_dict(torch.load(tmp_path / "state.th"))
    for step in range(steps, steps + 3):
        features = normal(3, 4, seed=step, dtype=torch.float32)
        mine = one(features, ids)
        torch.rand(3)  # the global state must not matter
        assert torch.equal(mine, other(features, ids))
    for key, value in one.state_dict().items():
        assert torch.equal(value.nan_to_num(), other.state_dict()[key].nan_to_num()), key


@pytest.mark.parametrize("noise", [None, 4])
def test_validation_changes_no_state(noise: int | None) -> None:
    objective = InstanceDiscrimination(9, 4, noise=noise).eval()
    before = {key: value.clone() for key, value in objective.state_dict().items()}
    features, ids = normal(3, 4, dtype=torch.float32), torch.arange(3)
    assert torch.equal(objective(features, ids), objective(features, ids))
    for key, value in objective.state_dict().items():
        assert torch.allclose(value, before[key], equal_nan=True)


def test_registered_name_and_refusals() -> None:
    built = Objective.from_params(
        Params({"type": "instance_discrimination", "instances": 5, "embedding_size": 4, "noise": 2})
    )
    assert isinstance(built, InstanceDiscrimination)
    assert (built.min_pairs, built.noise) == (1, 2)
    assert built.inputs == {"anchors": True, "ids": True}
    rows = normal(2, 4, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"ids from 0 to 4 \(instances is 5\), got 0 to 5"):
        built(rows, torch.tensor([0, 5]))
    with pytest.raises(
        ValueError, match=r"features \(N, 4\) and ids \(N,\), got \(2, 4\) and \(3,\)"
    ):
        built(rows, torch.arange(3))
    with pytest.raises(ConfigurationError, match=r"momentum must be in \[0, 1\), got 1"):
        InstanceDiscrimination(5, 4, momentum=1)
    with pytest.raises(ConfigurationError, match="noise must be at least 1 draw, got 0"):
        InstanceDiscrimination(5, 4, noise=0)
    with pytest.raises(ConfigurationError, match="instances must be above 0, got 0"):
        InstanceDiscrimination(0, 4)


@pytest.mark.parametrize("noise", [None, 3])
def test_all_saved_values_are_finite(noise: int | None) -> None:
    """Check all buffers, because a checkpoint with other values is refused."""
    objective = InstanceDiscrimination(7, 4, noise=noise).train()
    assert all(value.isfinite().all() for value in objective.state_dict().values())
    objective(normal(3, 4, dtype=torch.float32), torch.arange(3))
    assert all(value.isfinite().all() for value in objective.state_dict().values())


@pytest.mark.parametrize("noise", [None, 4])
def test_a_step_reads_no_tensor_on_the_host(noise: int | None) -> None:
    objective = InstanceDiscrimination(9, 3, noise=noise).train()
    objective(normal(2, 3).float(), torch.tensor([0, 1]))
    features = normal(3, 3).float().requires_grad_()
    for ids in ([4, 8, 1], [4, 8, 4]):
        with NeverWaits():
            objective(features, torch.tensor(ids)).backward()
