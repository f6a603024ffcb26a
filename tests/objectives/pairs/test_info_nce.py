"""Tests of InfoNCE, its forms in SimCSE, and N-pair against golden numbers and loops."""

import math

import pytest
import torch
from hypothesis.strategies import integers, sampled_from
from pytorch_metric_learning import losses
from torch import Tensor

from declutr.objectives import InfoNCE, NPair, info_nce, n_pair_loss
from tests.objectives.oracles import (
    Golden,
    assert_reductions,
    cosine,
    dot,
    drawn,
    log_sum_exp,
    mean,
    normal,
)

GOLDEN, SIMCSE = Golden("pairs", "infonce_npair"), Golden("pairs", "simcse")
X, Y = GOLDEN.inputs("x", "y")
Z = SIMCSE.inputs("z3_hard_neg")[0]


def test_golden_numbers() -> None:
    found = {
        "mean_x_to_y": info_nce(X, Y),
        "mean_y_to_x": info_nce(Y, X),
        "symmetric_average": info_nce(X, Y, symmetric=True),
        "cosine_tau1_mean_x_to_y": info_nce(X, Y, "cosine"),
    }
    GOLDEN.check(found)
    for n_pair in (n_pair_loss, NPair()):
        GOLDEN.check({"mean_x_to_y": n_pair(X, Y)})
    weighted = InfoNCE(1, "cosine", own_negative_logit=math.log(2))
    found = {
        "unsup": InfoNCE(0.05, "cosine")(X, Y),
        "unsup_tau1": InfoNCE(1, "cosine")(X, Y),
        "sup_with_hard_neg_tau0.05": InfoNCE(0.05, "cosine")(X, Y, Z),
        "sup_with_hard_neg_tau1": InfoNCE(1, "cosine")(X, Y, Z),
        "sup_hard_neg_logit_weight_ln2_tau1": weighted(X, Y, Z),
    }
    SIMCSE.check(found)
    other = SIMCSE.values["ntxent_same_inputs_mean_tau1_DIFFERENT_OBJECTIVE"]
    assert abs(found["unsup_tau1"].item() - other) > 1e-2


def naive(x: Tensor, y: Tensor, score, negatives: Tensor | None, own: float = 0.0) -> list[float]:
    terms = []
    for i in range(len(x)):
        candidates = [score(x[i], row) for row in y]
        rows = [] if negatives is None else negatives if negatives.dim() == 2 else negatives[i]
        candidates += [score(x[i], row) + own * (i == j) for j, row in enumerate(rows)]
        terms.append(log_sum_exp(candidates) - score(x[i], y[i]))
    return terms


@drawn(
    40,
    n=integers(1, 6),
    width=integers(1, 4),
    tau=sampled_from([0.1, 1.0, 3.0]),
    similarity=sampled_from(["dot", "cosine", "bilinear"]),
    negatives=sampled_from([None, "shared", "own", "one each"]),
)
def test_equals_loops(
    n: int, width: int, seed: int, tau: float, similarity: str, negatives: str | None
) -> None:
    x, y = normal(n, width, seed=seed), normal(n, width, seed=seed + 1)
    weight = normal(width, width, seed=seed + 2) if similarity == "bilinear" else None
    shape = {None: (0,), "shared": (3, width), "own": (n, 2, width), "one each": (n, width)}
    more = normal(*shape[negatives], seed=seed + 3) if negatives else None
    own = 0.7 if negatives == "one each" else 0.0

    def score(a: Tensor, b: Tensor) -> float:
        if similarity == "cosine":
            return cosine(a, b) / tau
        return dot(a if weight is None else a @ weight, b) / tau

    terms, settings = naive(x, y, score, more, own), (more, weight, own)
    assert_reductions(lambda r: info_nce(x, y, similarity, tau, False, *settings, r), terms)
    back = naive(y, x, lambda a, b: score(b, a), None)
    both = info_nce(x, y, similarity, tau, True, *settings)
    assert both.item() == pytest.approx((mean(terms) + mean(back)) / 2, rel=1e-9, abs=1e-9)


@drawn(15, n=integers(1, 4), several=integers(1, 3), symmetric=sampled_from([False, True]))
def test_several_views_equal_loops(n: int, several: int, seed: int, symmetric: bool) -> None:
    anchors, others = normal(n, 3, seed=seed), normal(n, several, 3, seed=seed + 1)
    views = [anchors, *others.unbind(1)]

    def score(a: Tensor, b: Tensor) -> float:
        return cosine(a, b) / 0.2

    def loss(x: Tensor, y: Tensor) -> float:
        both = mean(naive(x, y, score, None)), mean(naive(y, x, score, None))
        return sum(both) / 2 if symmetric else both[0]

    pairs = [(i, j) for j in range(several + 1) for i in range(j)]
    for name, chosen in (("full_graph", pairs), ("core_view", [p for p in pairs if p[0] == 0])):
        objective = InfoNCE(0.2, "cosine", symmetric, view_pairs=name)
        assert objective.inputs == {"anchors": True, "positive_views": True, "negatives": False}
        expected = mean([loss(views[i], views[j]) for i, j in chosen])
        found = objective(anchors, positive_views=others).item()
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_learnt_temperature_equals_a_loop_and_stays_in_bounds() -> None:
    """By hand: the gradient of log(1 / tau), and steps beyond the bound and back."""
    x, y = normal(4, 3), normal(4, 3, seed=1)
    objective = InfoNCE(0.07, "cosine", symmetric=True, learn_temperature=True).double()
    scale = objective.log_scale
    assert scale is not None and scale.exp().item() == pytest.approx(1 / 0.07, rel=1e-6)

    def loss(log_scale: float) -> float:
        def score(a: Tensor, b: Tensor) -> float:
            return cosine(a, b) * math.exp(log_scale)

        return (mean(naive(x, y, score, None)) + mean(naive(y, x, score, None))) / 2

    found = objective(x, y)
    found.backward()
    start, h = scale.item(), 1e-5
    assert found.item() == pytest.approx(loss(start), rel=1e-9)
    slope = (loss(start + h) - loss(start - h)) / (2 * h)
    assert scale.grad is not None and scale.grad.item() == pytest.approx(slope, rel=1e-6)
    assert objective.last_metrics["temperature"].item() == pytest.approx(0.07)
    optimizer = torch.optim.SGD(objective.parameters(), lr=1.0)
    objective.follow_optimizer(optimizer)
    for gradient, expected in ((-9.0, math.log(100)), (0.5, math.log(100) - 0.5)):
        scale.grad = torch.tensor([gradient]).double()
        optimizer.step()
        assert scale.item() == pytest.approx(expected)
    other = InfoNCE(0.05, "cosine", symmetric=True, learn_temperature=True).double()
    other.load_state_dict(objective.state_dict())
    assert torch.equal(other(x, y), objective(x, y))


@drawn(30, n=integers(2, 8))
def test_n_pair_is_info_nce_of_dot_products(n: int, seed: int) -> None:
    x, y = normal(n, 3, seed=seed), normal(n, 3, seed=seed + 1)
    expected = info_nce(x, y, reduction="none").tolist()
    assert n_pair_loss(x, y, "none").tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert n_pair_loss(x[:1], y[:1]).item() == 0


def test_equals_the_one_sided_loss_of_the_library() -> None:
    theirs = losses.SelfSupervisedLoss(losses.NTXentLoss(0.5), symmetric=False)(X, Y)
    assert info_nce(X, Y, "cosine", 0.5).item() == pytest.approx(theirs.item())


def test_equal_rows_give_the_loss_of_guessing_and_far_logits_do_not_overflow() -> None:
    rows = torch.ones(5, 3, dtype=torch.float64)
    assert info_nce(rows, rows, "cosine", 0.05).item() == pytest.approx(math.log(5))
    assert n_pair_loss(rows, rows).item() == pytest.approx(math.log(5))
    x = 100 * torch.eye(3)
    assert n_pair_loss(x, -x).item() == pytest.approx(10_000, abs=2)
    assert n_pair_loss(x, x).item() == 0


def test_the_bilinear_matrix_starts_as_the_identity() -> None:
    objective = InfoNCE(similarity="bilinear", embedding_size=3)
    assert objective(X, Y).item() == pytest.approx(info_nce(X, Y).item())


def test_negatives_get_a_gradient() -> None:
    negatives = Z.clone().requires_grad_()
    InfoNCE(0.5, "cosine")(X, Y, negatives).backward()
    assert (negatives.grad.abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"similarity": "l2"}, "Unknown similarity 'l2': expected one of dot, cosine, bilinear"),
        ({"similarity": "bilinear"}, "needs a weight"),
        ({"weight": torch.eye(3)}, "needs a weight"),
        ({"reduction": "max"}, "Unknown reduction 'max': expected one of mean, sum, none"),
        ({"negatives": torch.ones(2, 4)}, r"must be \(M, 3\) or \(4, M, 3\), got \(2, 4\)"),
        ({"negatives": torch.ones(3, 2, 3)}, r"must be \(M, 3\) or \(4, M, 3\), got \(3, 2, 3\)"),
        ({"own_negative_logit": 1.0}, r"own_negative_logit is for negatives \(N, d\), got none"),
        (
            {"own_negative_logit": 1.0, "negatives": X[:2]},
            r"row i being that of row i; got \(2, 3\)",
        ),
    ],
)
def test_invalid_arguments_raise(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        info_nce(X, Y, **options)
