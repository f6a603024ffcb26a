"""Tests of MoCo against golden numbers, and a queue and loops in Python."""

import math
from collections import deque
from pathlib import Path

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import Objective
from declutr.objectives.memories.momentum_contrast import (
    KeyQueue,
    MomentumContrast,
    moco_loss,
    momentum_update,
)
from tests.objectives.laws import (
    assert_finite_where_it_is_hard,
    assert_full_precision,
    assert_gradients,
    assert_zero_with_a_graph,
    doubles,
    golden,
    largest_saved,
    normal,
    rescaled,
    views,
)

GOLDEN = golden("momentum_contrast")["moco"]
Q, K, QUEUE = (doubles(GOLDEN["inputs"][key]) for key in ("q_raw", "k_raw", "queue_raw"))


def unit(row: list[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in row))
    return [value / length for value in row]


def naive_terms(queries: Tensor, keys: Tensor, queue: list[list[float]], tau: float) -> list[float]:
    terms = []
    for query, key in zip(queries.tolist(), keys.tolist(), strict=True):
        candidates = [
            sum(a * b for a, b in zip(unit(query), unit(row), strict=True)) / tau
            for row in [key, *queue]
        ]
        top = max(candidates)
        terms.append(top + math.log(sum(math.exp(c - top) for c in candidates)) - candidates[0])
    return terms


def test_golden_numbers() -> None:
    values = GOLDEN["values"]
    assert moco_loss(Q, K, QUEUE).item() == pytest.approx(values["tau0.07_mean"], abs=1e-9)
    loss = moco_loss(Q, K, QUEUE, temperature=1.0).item()
    assert loss == pytest.approx(values["tau1_mean"], abs=1e-9)
    assert abs(loss - values["tau1_mean_if_current_keys_are_enqueued_first_PML"]) > 1e-4
    target, source = doubles([0.5]), doubles([1.5])
    momentum_update([target], [source], 0.999)
    assert target.item() == pytest.approx(values["ema_theta_k"], abs=1e-12)


def test_a_step_uses_the_queue_as_it_was_before() -> None:
    objective = MomentumContrast(embedding_size=3, queue_size=3, temperature=1.0).double().train()
    objective.queue.enqueue(QUEUE)
    loss = objective(Q, K)
    assert loss.item() == pytest.approx(GOLDEN["values"]["tau1_mean"], abs=1e-9)
    expected = torch.nn.functional.normalize(torch.cat([K, QUEUE[2:]]), dim=-1)
    assert torch.allclose(objective.queue.keys, expected)  # The oldest two were overwritten.


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 6),
    size=st.integers(0, 6),
    seed=st.integers(0, 10**6),
    tau=st.sampled_from([0.07, 1.0]),
)
def test_equals_the_formula_in_loops(n: int, size: int, seed: int, tau: float) -> None:
    queries, keys = views(n, 3, seed)
    queue = normal(size, 3, seed=seed + 5)
    expected = naive_terms(queries, keys, queue.tolist(), tau)
    terms = moco_loss(queries, keys, queue, tau, "none")
    assert terms.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert moco_loss(queries, keys, queue, tau, "sum").item() == pytest.approx(sum(expected))
    changed = moco_loss(*rescaled(seed, queries, keys), queue, tau)
    assert changed.item() == pytest.approx(sum(expected) / n, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("size", [1, 4, 7, 30])
def test_the_queue_holds_the_last_keys(size: int) -> None:
    """Try batches that fit into the queue, that wrap around, and that are larger than it."""
    queue, expected = KeyQueue(size, 3).double(), deque(maxlen=size)
    for step, count in enumerate([3, 2, 5, 1, 9, 4, 0, 3]):
        rows = normal(count, 3, seed=step)
        before = queue.rows(only_valid=False)
        kept = before.clone()
        queue.enqueue(rows)
        expected.extend(unit(row) for row in rows.tolist())
        assert torch.equal(before, kept)  # The backward pass needs a copy.
        held = sorted(queue.rows(only_valid=True).tolist())
        assert len(held) == len(expected) == int(queue.valid.sum())
        assert queue.full == bool(queue.valid.all())
        assert torch.allclose(doubles(held), doubles(sorted(expected)))
    assert torch.allclose(queue.keys.norm(dim=1), torch.ones(size, dtype=torch.float64))


@pytest.mark.parametrize("only_filled", [False, True])
def test_steps_equal_a_naive_queue(only_filled: bool) -> None:
    objective = MomentumContrast(3, 8, temperature=0.5, only_filled=only_filled).double().train()
    queue: deque = deque(objective.queue.keys.tolist(), maxlen=8)
    filled: deque = deque(maxlen=8)
    for step in range(6):
        queries, keys = views(3, 3, seed=step)
        terms = naive_terms(queries, keys, list(filled if only_filled else queue), 0.5)
        assert objective(queries, keys).item() == pytest.approx(sum(terms) / 3, abs=1e-12)
        queue.extend(keys.tolist())
        filled.extend(keys.tolist())


def test_with_only_filled_the_first_batch_has_no_negatives() -> None:
    objective = MomentumContrast(4, 8, only_filled=True).double().train()
    queries, keys = views(3)
    queries.requires_grad_()
    loss = objective(queries, keys)
    loss.backward()
    assert loss.item() == 0 and queries.grad is not None and not queries.grad.any()
    assert objective(queries, keys) > 0


def test_keys_carry_no_gradient() -> None:
    objective = MomentumContrast(4, 8).double().train()
    queries, keys = (view.requires_grad_() for view in views(3))
    for _ in range(2):
        objective(queries, keys).backward()
    assert queries.grad is not None and queries.grad.any() and keys.grad is None
    assert not list(objective.parameters())


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_resumed_run_continues_exactly(tmp_path: Path, steps: int) -> None:
    def fresh() -> MomentumContrast:
        return MomentumContrast(4, 10, only_filled=True).train()

    one = fresh()
    for step in range(steps):
        one(*views(4, seed=step, dtype=torch.float32))
    torch.save(one.state_dict(), tmp_path / "state.th")
    other = fresh()
    other(*views(3, seed=99, dtype=torch.float32))
    other.load_state_dict(torch.load(tmp_path / "state.th"))
    assert other.queue.full == (steps == 3)
    for step in range(steps, steps + 4):
        batch = views(4, seed=step, dtype=torch.float32)
        assert torch.equal(one(*batch), other(*batch))
    mine, others = one.state_dict(), other.state_dict()
    assert set(mine) == {"queue.keys", "queue.valid", "queue.position"}
    assert all(torch.equal(mine[key], others[key]) for key in mine)


def test_validation_leaves_the_queue_alone() -> None:
    objective = MomentumContrast(4, 8).train()
    objective(*views(3, dtype=torch.float32))
    before = {key: value.clone() for key, value in objective.state_dict().items()}
    objective.eval()(*views(3, seed=5, dtype=torch.float32))
    assert all(torch.equal(value, before[key]) for key, value in objective.state_dict().items())


@pytest.mark.parametrize("momentum, expected", [(1.0, 2.0), (0.0, 6.0), (0.75, 3.0)])
def test_momentum_update(momentum: float, expected: float) -> None:
    target = torch.nn.Linear(2, 2)
    source = torch.nn.Linear(2, 2)
    for module, value in ((target, 2.0), (source, 6.0)):
        for parameter in module.parameters():
            torch.nn.init.constant_(parameter, value)
    momentum_update(target.parameters(), source.parameters(), momentum)
    assert all(bool((parameter == expected).all()) for parameter in target.parameters())


def test_gradients_and_hard_batches() -> None:
    queue = normal(5, 4, seed=7)
    assert_gradients(lambda q: moco_loss(q, views(3)[1], queue), views(3)[0])
    assert_finite_where_it_is_hard(lambda x, y: moco_loss(x, y, queue))
    assert_full_precision(lambda x, y: moco_loss(x, y, queue), *views(16))
    queries = views(3)[0].requires_grad_()
    assert_zero_with_a_graph(moco_loss(queries[:0], queries[:0], queue), queries)
    assert_zero_with_a_graph(moco_loss(queries, queries, queue[:0]), queries)


def test_memory_is_queries_times_queue() -> None:
    queries, keys = views(256, 8, dtype=torch.float32)
    queue = normal(1024, 8, dtype=torch.float32)
    assert largest_saved(lambda q: moco_loss(q, keys, queue), queries) <= 256 * 1025


def test_registered_name_and_refusals() -> None:
    built = Objective.from_params(
        Params({"type": "moco", "embedding_size": 4, "queue_size": 6, "only_filled": True})
    )
    assert isinstance(built, MomentumContrast)
    assert (built.temperature, built.min_pairs, built.only_filled) == (0.07, 1, True)
    with pytest.raises(ConfigurationError, match="queue_size must be above 0, got 0"):
        MomentumContrast(4, 0)
    with pytest.raises(ValueError, match=r"width 4 \(embedding_size\), got \(2, 3\)"):
        built(*views(2, 3, dtype=torch.float32))
    with pytest.raises(ValueError, match=r"width 4 \(embedding_size\), got \(2, 3\)"):
        built.queue.enqueue(torch.ones(2, 3))
