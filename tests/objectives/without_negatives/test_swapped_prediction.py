"""Tests of SwAV against loops in Python and the problem that Sinkhorn-Knopp solves."""

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
from declutr.objectives.without_negatives.swapped_prediction import (
    SwappedPrediction,
    sinkhorn_assignments,
    swav_loss,
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
    views,
)

PROTOTYPES = normal(3, 4, seed=11)


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def naive_sinkhorn(scores: list[list[float]], epsilon: float, iterations: int) -> list[list[float]]:
    """Run the Sinkhorn-Knopp algorithm as printed, with exponentials."""
    q = [[math.exp(value / epsilon) for value in row] for row in scores]
    rows, columns = len(q), len(q[0])
    for _ in range(iterations):
        totals = [sum(row[k] for row in q) for k in range(columns)]
        q = [[row[k] / totals[k] / columns for k in range(columns)] for row in q]
        q = [[value / sum(row) / rows for value in row] for row in q]
    return [[value * rows for value in row] for row in q]


def naive_loss(
    first: Tensor, second: Tensor, prototypes: Tensor, queues: list[Tensor] | None = None
) -> float:
    targets, logs = [], []
    for index, view in enumerate((first, second)):
        rows = view if queues is None else torch.cat([queues[index], view])
        scores = (unit(rows) @ unit(prototypes).T).tolist()
        targets.append(naive_sinkhorn(scores, 0.05, 3)[-len(view) :])
        own = scores[-len(view) :]
        logs.append(
            [[s / 0.1 - math.log(sum(math.exp(o / 0.1) for o in row)) for s in row] for row in own]
        )
    total = 0.0
    for target, log in ((targets[1], logs[0]), (targets[0], logs[1])):
        for q, p in zip(target, log, strict=True):
            total -= sum(a * b for a, b in zip(q, p, strict=True))
    return total / 2 / len(first)


@settings(max_examples=30, deadline=None)
@given(
    n=st.integers(1, 7),
    prototypes=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    queued=st.sampled_from([None, 0, 4]),
)
def test_equals_the_formula_in_loops(
    n: int, prototypes: int, seed: int, queued: int | None
) -> None:
    batch = views(n, 3, seed)
    centres = normal(prototypes, 3, seed=seed + 9)
    queues = None if queued is None else [normal(queued, 3, seed=seed + k) for k in (3, 4)]
    expected = naive_loss(*batch, centres, queues)
    names = ("first_queue", "second_queue")
    given_queues = dict(zip(names, queues, strict=True)) if queues else {}
    loss = swav_loss(*batch, centres, **given_queues)
    assert loss.item() == pytest.approx(expected, rel=1e-8, abs=1e-10)
    total = swav_loss(*batch, centres, **given_queues, reduction="sum")
    assert total.item() == pytest.approx(n * expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("rows, columns", [(4, 4), (9, 3), (3, 9)])
def test_assignments_use_all_prototypes_equally(rows: int, columns: int) -> None:
    scores = normal(rows, columns)
    assert torch.allclose(
        sinkhorn_assignments(scores, 0.5, 3).sum(dim=1), torch.ones(rows, dtype=torch.float64)
    )
    found = sinkhorn_assignments(scores, 0.5, 500)
    expected = torch.full((columns,), rows / columns, dtype=torch.float64)
    assert torch.allclose(found.sum(dim=0), expected)
    # The optimum of the transport problem is exp(scores / epsilon) scaled by rows and columns.
    scaling = found.log() - scores / 0.5
    of_columns = scaling - scaling[:, :1]
    assert torch.allclose(of_columns, of_columns[:1].expand(rows, columns))


def test_assignments_use_prototypes_that_a_softmax_would_leave_out() -> None:
    scores = torch.tensor([[1.0, 0.9], [1.0, 0.8], [1.0, 0.7], [1.0, 0.6]])
    assert (scores.argmax(dim=1) == 0).all()
    found = sinkhorn_assignments(scores, 0.05, 100)
    assert found.argmax(dim=1).tolist() == [1, 1, 0, 0]


def test_assignments_do_not_overflow() -> None:
    scores = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
    found = sinkhorn_assignments(scores.requires_grad_(), 0.001, 3)
    assert not found.requires_grad
    assert torch.allclose(found, torch.eye(2))


def test_gradients() -> None:
    """Check gradients through the predictions, with assignments as constants."""
    first, second = views(4)

    def with_constants(x: Tensor, y: Tensor, c: Tensor) -> Tensor:
        terms = []
        for view, other in ((x, second), (y, first)):
            q = sinkhorn_assignments(unit(other) @ unit(PROTOTYPES).T)
            terms.append(-(q * (unit(view) @ unit(c).T / 0.1).log_softmax(dim=1)).sum(dim=1))
        return (terms[0] + terms[1]).mean() / 2

    assert_gradients(with_constants, first, second, PROTOTYPES)
    results = []
    for loss in (swav_loss, with_constants):
        inputs = [x.clone().requires_grad_() for x in (first, second, PROTOTYPES)]
        value = loss(*inputs)
        results.append([value, *torch.autograd.grad(value, inputs)])
    for mine, other in zip(*results, strict=True):
        assert torch.allclose(mine, other)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 7), seed=st.integers(0, 10**6))
def test_invariant_to_order_scale_and_exchange_of_views(n: int, seed: int) -> None:
    batch = views(n, 4, seed)
    expected = swav_loss(*batch, PROTOTYPES).item()
    for changed in (permuted(n, seed, *batch), rescaled(seed, *batch), batch[::-1]):
        assert swav_loss(*changed, PROTOTYPES * 7).item() == pytest.approx(expected)


def test_hard_batches_precision_and_memory() -> None:
    assert_finite_where_it_is_hard(lambda x, y: swav_loss(x, y, PROTOTYPES))
    assert_full_precision(lambda x, y: swav_loss(x, y, PROTOTYPES), *views(16))
    batch = views(512, dtype=torch.float32)
    assert largest_saved(lambda x, y: swav_loss(x, y, PROTOTYPES.float()), *batch) <= 512 * 4
    empty = [view[:0].requires_grad_() for view in views(2)]
    assert_zero_with_a_graph(swav_loss(*empty, PROTOTYPES), *empty)


def test_a_queue_is_used_once_it_is_full() -> None:
    objective = SwappedPrediction(4, 3, queue_size=5).double().train()
    seen: list[list[Tensor]] = []
    for step in range(4):
        batch = views(2, seed=step)
        earlier = [torch.cat(rows)[-5:] for rows in zip(*seen, strict=True)] if seen else []
        queues = earlier if seen and len(earlier[0]) == 5 else None
        expected = naive_loss(*batch, objective.prototypes.detach(), queues)
        assert objective(*batch).item() == pytest.approx(expected), step
        assert (queues is not None) is (step == 3)
        seen.append(batch)


def test_a_resumed_run_continues_exactly_and_validation_changes_no_state(tmp_path: Path) -> None:
    one = SwappedPrediction(4, 3, queue_size=4).train()
    for step in range(3):
        one(*views(2, seed=step, dtype=torch.float32))
    torch.save(one.state_dict(), tmp_path / "state.th")
    other = SwappedPrediction(4, 3, queue_size=4).train()
    other.load_state_dict(torch.load(tmp_path / "state.th"))
    batch = views(2, seed=9, dtype=torch.float32)
    one.eval()(*batch)  # Validation must not change the state.
    one.train()
    for _ in range(2):
        assert torch.equal(one(*batch), other(*batch))
    assert all(
        torch.equal(value, other.state_dict()[key]) for key, value in one.state_dict().items()
    )


def test_registered_name_and_refusals() -> None:
    built = Objective.from_params(Params({"type": "swav", "embedding_size": 4, "prototypes": 6}))
    assert isinstance(built, SwappedPrediction)
    assert [name for name, _ in built.named_parameters()] == ["prototypes"]
    batch = views(3, dtype=torch.float32)
    built(*batch).backward()
    assert built.prototypes.grad is not None and built.prototypes.grad.any()
    assert torch.allclose(built.prototypes.norm(dim=1), torch.ones(6))
    for setting in ("prototypes", "epsilon", "iterations", "temperature", "embedding_size"):
        with pytest.raises(ConfigurationError, match=f"{setting} must be above 0, got 0"):
            SwappedPrediction(**{"embedding_size": 4, setting: 0})
    with pytest.raises(ConfigurationError, match="queue_size must be 0 or above, got -1"):
        SwappedPrediction(4, queue_size=-1)
    with pytest.raises(ValueError, match=r"rows of width 4 \(embedding_size\), got \(3, 2\)"):
        built(*views(3, 2, dtype=torch.float32))
