"""Tests of MoCo against golden numbers, and a queue and loops in Python."""

from collections import deque

import pytest
import torch
from hypothesis.strategies import integers, sampled_from
from torch import Tensor
from torch.nn.functional import normalize

from declutr.objectives.memories.momentum_contrast import (
    KeyQueue,
    MomentumContrast,
    moco_loss,
    momentum_update,
)
from tests.objectives import laws
from tests.objectives.oracles import (
    Golden,
    assert_reductions,
    cosine,
    doubles,
    drawn,
    log_sum_exp,
    normal,
    views,
)

GOLDEN = Golden("momentum_contrast", "moco")
Q, K, QUEUE = GOLDEN.inputs("q_raw", "k_raw", "queue_raw")


def naive_terms(queries: Tensor, keys: Tensor, queue: list[Tensor], tau: float) -> list[float]:
    terms = []
    for query, key in zip(queries, keys, strict=True):
        candidates = [cosine(query, row) / tau for row in [key, *queue]]
        terms.append(log_sum_exp(candidates) - candidates[0])
    return terms


def test_golden_numbers() -> None:
    loss = moco_loss(Q, K, QUEUE, temperature=1.0)
    target = doubles([0.5])
    momentum_update([target], [doubles([1.5])], 0.999)
    found = {"tau0.07_mean": moco_loss(Q, K, QUEUE), "tau1_mean": loss, "ema_theta_k": target}
    GOLDEN.check(found)
    wrong = GOLDEN.values["tau1_mean_if_current_keys_are_enqueued_first_PML"]
    assert abs(loss.item() - wrong) > 1e-4


def test_a_step_uses_the_queue_as_it_was_before() -> None:
    objective = MomentumContrast(embedding_size=3, queue_size=3, temperature=1.0).double().train()
    objective.queue.enqueue(QUEUE)
    GOLDEN.check({"tau1_mean": objective(Q, K)})
    expected = normalize(torch.cat([K, QUEUE[2:]]), dim=-1)
    assert torch.allclose(objective.queue.keys, expected)  # The oldest two were overwritten.


@drawn(30, n=integers(1, 6), size=integers(0, 6), tau=sampled_from([0.07, 1.0]))
def test_equals_the_formula_in_loops(n: int, size: int, seed: int, tau: float) -> None:
    queries, keys = views(n, 3, seed)
    queue = normal(size, 3, seed=seed + 5)
    terms = naive_terms(queries, keys, list(queue), tau)
    assert_reductions(lambda reduction: moco_loss(queries, keys, queue, tau, reduction), terms)


@pytest.mark.parametrize("size", [1, 4, 7, 30])
def test_the_queue_holds_the_last_keys(size: int) -> None:
    """Try batches that fit into the queue, that wrap around, and that are larger than it."""
    queue, expected = KeyQueue(size, 3).double(), deque(maxlen=size)
    for step, count in enumerate([3, 2, 5, 1, 9, 4, 0, 3]):
        rows = normal(count, 3, seed=step)
        before = queue.rows(only_valid=False)
        kept = before.clone()
        queue.enqueue(rows)
        expected.extend(normalize(rows, dim=-1).tolist())
        assert torch.equal(before, kept)  # The backward pass needs a copy.
        held = sorted(queue.rows(only_valid=True).tolist())
        assert len(held) == len(expected) == int(queue.valid.sum())
        assert queue.full == bool(queue.valid.all())
        assert torch.allclose(doubles(held), doubles(sorted(expected)))
    assert torch.allclose(queue.keys.norm(dim=1), torch.ones(size, dtype=torch.float64))
    assert set(queue.state_dict()) == {"keys", "valid", "position"}
    with pytest.raises(ValueError, match=r"width 3 \(embedding_size\), got \(2, 4\)"):
        queue.enqueue(torch.ones(2, 4))


@pytest.mark.parametrize("only_filled", [False, True])
def test_steps_equal_a_naive_queue(only_filled: bool) -> None:
    """Keys carry no gradient; with `only_filled` the first batch has no negatives."""
    objective = MomentumContrast(3, 8, temperature=0.5, only_filled=only_filled).double().train()
    queue: deque = deque(objective.queue.keys, maxlen=8)
    filled: deque = deque(maxlen=8)
    for step in range(6):
        queries, keys = (view.requires_grad_() for view in views(3, 3, seed=step))
        terms = naive_terms(queries, keys, list(filled if only_filled else queue), 0.5)
        loss = objective(queries, keys)
        assert loss.item() == pytest.approx(sum(terms) / 3, abs=1e-12)
        loss.backward()
        assert queries.grad is not None and keys.grad is None
        assert bool(queries.grad.any()) == bool(step or not only_filled)
        queue.extend(keys.detach())
        filled.extend(keys.detach())


@pytest.mark.parametrize("momentum, expected", [(1.0, 2.0), (0.0, 6.0), (0.75, 3.0)])
def test_momentum_update(momentum: float, expected: float) -> None:
    target, source = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    for module, value in ((target, 2.0), (source, 6.0)):
        for parameter in module.parameters():
            torch.nn.init.constant_(parameter, value)
    momentum_update(target.parameters(), source.parameters(), momentum)
    assert all(bool((parameter == expected).all()) for parameter in target.parameters())


def test_without_queries_or_keys_the_loss_is_zero_with_a_graph() -> None:
    queue, queries = normal(5, 4, seed=7), views(3)[0].requires_grad_()
    laws.assert_zero_with_a_graph(moco_loss(queries[:0], queries[:0], queue), queries)
    laws.assert_zero_with_a_graph(moco_loss(queries, queries, queue[:0]), queries)
