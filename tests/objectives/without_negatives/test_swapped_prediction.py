"""Tests of SwAV against loops in Python and the problem that Sinkhorn-Knopp solves."""

import math
from typing import Any

import pytest
import torch
from hypothesis.strategies import integers, sampled_from
from torch import Tensor
from torch.nn.functional import normalize

from declutr.objectives.without_negatives.swapped_prediction import (
    SwappedPrediction,
    multi_crop_swav_loss,
    sinkhorn_assignments,
    swav_loss,
)
from tests.objectives import laws
from tests.objectives.oracles import (
    assert_reductions,
    cosine,
    drawn,
    log_sum_exp,
    mean,
    normal,
    views,
)

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
    views: Any, prototypes: Tensor, queues: list[Tensor] | None = None, assigned: int = 2
) -> list[float]:
    targets, logs = [], []
    for index, view in enumerate(views):
        queue = queues[index : index + 1] if queues else []
        scores = [[cosine(row, c) for c in prototypes] for row in torch.cat([*queue, view])]
        targets.append(naive_sinkhorn(scores, 0.05, 3)[-len(view) :])
        own = [[s / 0.1 for s in row] for row in scores[-len(view) :]]
        logs.append([[s - log_sum_exp(row) for s in row] for row in own])
    terms = []
    for i in range(len(views[0])):
        swapped = [
            -sum(q * p for q, p in zip(targets[a][i], logs[v][i], strict=True))
            for a in range(assigned)
            for v in range(len(views))
            if v != a
        ]
        terms.append(mean(swapped))
    return terms


@drawn(30, n=integers(1, 7), prototypes=integers(1, 5), queued=sampled_from([None, 0, 4]))
def test_equals_the_formula_in_loops(
    n: int, prototypes: int, seed: int, queued: int | None
) -> None:
    batch, centres = views(n, 3, seed), normal(prototypes, 3, seed=seed + 9)
    queues = None if queued is None else [normal(queued, 3, seed=seed + k) for k in (3, 4)]
    names = ("first_queue", "second_queue")
    given = dict(zip(names, queues, strict=True)) if queues else {}
    terms = naive_terms(batch, centres, queues)
    assert_reductions(lambda r: swav_loss(*batch, centres, **given, reduction=r), terms, "mean sum")


@drawn(20, n=integers(1, 4), several=integers(2, 4), queued=sampled_from([False, True]))
def test_several_views_equal_loops(n: int, several: int, seed: int, queued: bool) -> None:
    views, centres = normal(several, n, 3, seed=seed), normalize(normal(3, 3, seed=seed + 9))
    for assigned in range(1, several + 1):
        queues = [normal(2, 3, seed=seed + k) for k in range(assigned)] if queued else None
        terms = naive_terms(views, centres, queues, assigned)
        found = multi_crop_swav_loss(
            list(views), centres, assigned, queues=queues, reduction="none"
        )
        assert found.tolist() == pytest.approx(terms, rel=1e-8)
        inputs = views.clone().requires_grad_()
        multi_crop_swav_loss(inputs, centres, assigned).backward()
        reached = inputs.grad.flatten(1).any(dim=1).tolist()
        assert reached == [v > 0 or assigned > 1 for v in range(several)]


@pytest.mark.parametrize("queue_size", [0, 6])
def test_every_positive_is_a_view(queue_size: int) -> None:
    """Two steps: in the second one the queues of the assigned views are full."""
    settings = {"queue_size": queue_size, "assigned_views": 3, "renormalise": True}
    objective = SwappedPrediction(4, 3, **settings).double().train()
    assert objective.inputs == {"anchors": True, "positive_views": True}
    queues = None
    for seed in (0, 1):
        anchors, others = normal(6, 4, seed=seed), normal(6, 3, 4, seed=seed + 7)
        views = [anchors, *others.unbind(1)]
        terms = naive_terms(views, objective.prototypes.detach(), queues, 3)
        assert objective(anchors, positive_views=others).item() == pytest.approx(mean(terms))
        queues = views[:3] if queue_size else None
    with pytest.raises(ValueError, match="2 or more views, of which 3 are assigned, got 2"):
        objective(anchors, positive_views=others[:, :1])


def test_states_of_earlier_releases_have_all_that_there_is() -> None:
    state = SwappedPrediction(4, 3, queue_size=5).state_dict()
    queues = {f"{n}_queue.{k}" for n in ("first", "second") for k in ("keys", "valid", "position")}
    assert state.keys() == {"prototypes"} | queues


class PublicLogic:
    """The training loop of the public code, on features of a linear layer."""

    def __init__(self, kind: Any, start: Tensor, layer: Tensor, settings: dict) -> None:
        self.prototypes, self.layer = (x.clone().requires_grad_() for x in (start, layer))
        self.optimizer = kind([self.prototypes, self.layer], **settings)

    def step(self, number: int, frozen: int, batch: Any) -> float:
        with torch.no_grad():
            self.prototypes.copy_(normalize(self.prototypes))
        scores = [normalize(view @ self.layer) @ self.prototypes.T for view in batch]
        loss = torch.zeros((), dtype=torch.float64)
        for crop in range(2):
            rows = naive_sinkhorn(scores[crop].tolist(), 0.05, 3)
            q = torch.tensor(rows, dtype=torch.float64)
            for other in range(3):
                if other != crop:
                    log = torch.log_softmax(scores[other] / 0.1, dim=1)
                    loss = loss - (q * log).sum(1).mean() / 2 / 2
        self.optimizer.zero_grad()
        loss.backward()
        if number < frozen:
            self.prototypes.grad = None
        self.optimizer.step()
        return loss.item()


SGD = (torch.optim.SGD, {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.01})
ADAMW = (torch.optim.AdamW, {"lr": 0.02, "weight_decay": 0.1})


@pytest.mark.parametrize(("kind", "settings"), [SGD, ADAMW])
def test_steps_equal_the_logic_of_the_public_code(kind: Any, settings: dict) -> None:
    """Renormalised and frozen prototypes, over a resume before and after their release."""
    frozen = 6

    def begun() -> tuple[SwappedPrediction, Tensor, Any]:
        objective = SwappedPrediction(
            4, 5, assigned_views=2, renormalise=True, frozen_steps=frozen
        ).double()
        objective.prototypes.data = normalize(objective.prototypes.data)  # in this precision
        layer = normal(4, 4, seed=3).requires_grad_()
        optimizer = kind([objective.prototypes, layer], **settings)
        objective.follow_optimizer(optimizer)
        return objective.train(), layer, optimizer

    objective, layer, optimizer = begun()
    start = objective.prototypes.detach().clone()
    public = PublicLogic(kind, start, layer.detach(), settings)
    for number in range(20):
        if number in (4, 11):  # a new process
            states = objective.state_dict(), optimizer.state_dict()
            rows = layer.detach()
            objective, layer, optimizer = begun()
            objective.load_state_dict(states[0])
            optimizer.load_state_dict(states[1])
            layer.data.copy_(rows)
        batch = normal(3, 8, 4, seed=number)
        optimizer.zero_grad()
        views = [view @ layer for view in batch]
        loss = objective(views[0], positive_views=torch.stack(views[1:], dim=1))
        loss.backward()
        assert objective.prototypes.grad is not None  # for other processes
        assert (objective.prototypes.grad.abs().max() > 0) == (number >= frozen)
        optimizer.step()
        assert loss.item() == pytest.approx(public.step(number, frozen, batch), abs=1e-10)
        assert torch.equal(objective.prototypes, start) == (number < frozen)
        assert (objective.prototypes in optimizer.state) == (number >= frozen)
    assert torch.allclose(objective.prototypes, normalize(public.prototypes), atol=1e-10)
    assert torch.allclose(layer, public.layer, atol=1e-10)


def test_without_an_optimizer_to_follow_nothing_is_frozen() -> None:
    objective = SwappedPrediction(4, 3, renormalise=True, frozen_steps=2).train()
    objective(*views(5, dtype=torch.float32)).backward()
    assert objective.prototypes.grad is not None and objective.prototypes.grad.any()


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
        terms = naive_terms(batch, objective.prototypes.detach(), queues)
        assert objective(*batch).item() == pytest.approx(sum(terms) / 2), step
        assert (queues is not None) is (step == 3)
        seen.append(batch)
