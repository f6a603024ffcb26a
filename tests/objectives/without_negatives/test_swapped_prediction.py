"""Tests of SwAV against loops in Python and the problem that Sinkhorn-Knopp solves."""

import math

import pytest
import torch
from hypothesis.strategies import integers, sampled_from
from torch import Tensor
from torch.nn.functional import normalize

from declutr.objectives.without_negatives.swapped_prediction import (
    SwappedPrediction,
    sinkhorn_assignments,
    swav_loss,
)
from tests.objectives import laws
from tests.objectives.oracles import assert_reductions, cosine, drawn, log_sum_exp, normal, views

PROTOTYPES = normal(3, 4, seed=11)


def naive_sinkhorn(scores: list[list[float]], epsilon: float, iterations: int) -> list[list[float]]:
    """Run the Sinkhorn-Knopp algorithm as printed, with exponentials."""
    q = [[math.exp(value / epsilon) for value in row] for row in scores]
    rows, columns = len(q), len(q[0])
    for _ in range(iterations):
        totals = [sum(row[k] for row in q) for k in range(columns)]
        q = [[row[k] / totals[k] / columns for k in range(columns)] for row in q]
        q = [[value / sum(row) / rows for value in row] for row in q]
    return [[value * rows for value in row] for row in q]


def naive_terms(
    first: Tensor, second: Tensor, prototypes: Tensor, queues: list[Tensor] | None = None
) -> list[float]:
    targets, logs = [], []
    for index, view in enumerate((first, second)):
        rows = view if queues is None else torch.cat([queues[index], view])
        scores = [[cosine(row, prototype) for prototype in prototypes] for row in rows]
        targets.append(naive_sinkhorn(scores, 0.05, 3)[-len(view) :])
        own = [[s / 0.1 for s in row] for row in scores[-len(view) :]]
        logs.append([[s - log_sum_exp(row) for s in row] for row in own])
    return [
        -sum(
            q[k] * p[k]
            for q, p in ((targets[1][i], logs[0][i]), (targets[0][i], logs[1][i]))
            for k in range(len(prototypes))
        )
        / 2
        for i in range(len(first))
    ]


@drawn(30, n=integers(1, 7), prototypes=integers(1, 5), queued=sampled_from([None, 0, 4]))
def test_equals_the_formula_in_loops(
    n: int, prototypes: int, seed: int, queued: int | None
) -> None:
    batch, centres = views(n, 3, seed), normal(prototypes, 3, seed=seed + 9)
    queues = None if queued is None else [normal(queued, 3, seed=seed + k) for k in (3, 4)]
    names = ("first_queue", "second_queue")
    given = dict(zip(names, queues, strict=True)) if queues else {}
    terms = naive_terms(*batch, centres, queues)
    assert_reductions(lambda r: swav_loss(*batch, centres, **given, reduction=r), terms, "mean sum")


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
            q = sinkhorn_assignments(normalize(other) @ normalize(PROTOTYPES).T)
            terms.append(-(q * (normalize(view) @ normalize(c).T / 0.1).log_softmax(dim=1)).sum(1))
        return (terms[0] + terms[1]).mean() / 2

    laws.assert_gradients(with_constants, first, second, PROTOTYPES)
    inputs = [x.clone().requires_grad_() for x in (first, second, PROTOTYPES)]
    laws.assert_same_gradients(swav_loss(*inputs), with_constants(*inputs), *inputs, rtol=1e-5)


def test_no_rows_give_zero() -> None:
    empty = [view[:0].requires_grad_() for view in views(2)]
    laws.assert_zero_with_a_graph(swav_loss(*empty, PROTOTYPES), *empty)


def test_a_queue_is_used_once_it_is_full() -> None:
    objective = SwappedPrediction(4, 3, queue_size=5).double().train()
    assert torch.allclose(objective.prototypes.norm(dim=1), torch.ones(3).double())
    seen: list[list[Tensor]] = []
    for step in range(4):
        batch = views(2, seed=step)
        earlier = [torch.cat(rows)[-5:] for rows in zip(*seen, strict=True)] if seen else []
        queues = earlier if seen and len(earlier[0]) == 5 else None
        terms = naive_terms(*batch, objective.prototypes.detach(), queues)
        assert objective(*batch).item() == pytest.approx(sum(terms) / 2), step
        assert (queues is not None) is (step == 3)
        seen.append(batch)
