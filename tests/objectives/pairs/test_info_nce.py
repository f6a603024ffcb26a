"""Tests of InfoNCE, its forms in SimCSE, and N-pair against golden numbers and loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning import distances, losses
from torch import Tensor

from declutr.objectives import InfoNCE, NPair, info_nce, n_pair_loss
from tests.objectives.oracles import (
    GOLDEN,
    cosine,
    dot,
    golden_inputs,
    log_sum_exp,
    mean,
    normal,
)

X, Y = golden_inputs("infonce_npair", "x", "y")
Z = golden_inputs("simcse", "z3_hard_neg")[0]


def test_golden_numbers() -> None:
    values = GOLDEN["infonce_npair"]["values"]
    assert info_nce(X, Y).item() == pytest.approx(values["mean_x_to_y"], abs=1e-9)
    assert info_nce(Y, X).item() == pytest.approx(values["mean_y_to_x"], abs=1e-9)
    both = info_nce(X, Y, symmetric=True).item()
    assert both == pytest.approx(values["symmetric_average"], abs=1e-9)
    cosines = info_nce(X, Y, "cosine").item()
    assert cosines == pytest.approx(values["cosine_tau1_mean_x_to_y"], abs=1e-9)
    assert n_pair_loss(X, Y).item() == pytest.approx(values["mean_x_to_y"], abs=1e-9)
    assert NPair()(X, Y).item() == pytest.approx(values["mean_x_to_y"], abs=1e-9)


def test_golden_numbers_of_simcse() -> None:
    values = GOLDEN["simcse"]["values"]
    assert InfoNCE(0.05, "cosine")(X, Y).item() == pytest.approx(values["unsup"], abs=1e-9)
    assert InfoNCE(1, "cosine")(X, Y).item() == pytest.approx(values["unsup_tau1"], abs=1e-9)
    for tau in (0.05, 1):
        supervised = InfoNCE(tau, "cosine")(X, Y, Z).item()
        assert supervised == pytest.approx(values[f"sup_with_hard_neg_tau{tau}"], abs=1e-9)
    weighted = InfoNCE(1, "cosine", own_negative_logit=math.log(2))(X, Y, Z).item()
    assert weighted == pytest.approx(values["sup_hard_neg_logit_weight_ln2_tau1"], abs=1e-9)
    other = values["ntxent_same_inputs_mean_tau1_DIFFERENT_OBJECTIVE"]
    assert abs(InfoNCE(1, "cosine")(X, Y).item() - other) > 1e-2


def naive(x: Tensor, y: Tensor, score, negatives: Tensor | None, own: float = 0.0) -> list[float]:
    terms = []
    for i in range(len(x)):
        candidates = [score(x[i], row) for row in y]
        rows = [] if negatives is None else negatives if negatives.dim() == 2 else negatives[i]
        candidates += [score(x[i], row) + own * (i == j) for j, row in enumerate(rows)]
        terms.append(log_sum_exp(candidates) - score(x[i], y[i]))
    return terms


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 6),
    width=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    tau=st.sampled_from([0.1, 1.0, 3.0]),
    similarity=st.sampled_from(["dot", "cosine", "bilinear"]),
    negatives=st.sampled_from([None, "shared", "own", "one each"]),
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

    terms = naive(x, y, score, more, own)
    computed = info_nce(x, y, similarity, tau, False, more, weight, own, "none")
    assert computed.tolist() == pytest.approx(terms, rel=1e-9, abs=1e-9)
    back = naive(y, x, lambda a, b: score(b, a), None)
    both = info_nce(x, y, similarity, tau, True, more, weight, own)
    assert both.item() == pytest.approx((mean(terms) + mean(back)) / 2, rel=1e-9, abs=1e-9)
    total = info_nce(x, y, similarity, tau, False, more, weight, own, "sum")
    assert total.item() == pytest.approx(sum(terms), rel=1e-9, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 8), seed=st.integers(0, 10**6))
def test_n_pair_is_info_nce_of_dot_products(n: int, seed: int) -> None:
    x, y = normal(n, 3, seed=seed), normal(n, 3, seed=seed + 1)
    expected = info_nce(x, y, reduction="none").tolist()
    if n == 1:
        assert n_pair_loss(x, y).item() == 0
    else:
        assert n_pair_loss(x, y, "none").tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_equals_the_library() -> None:
    labels = torch.arange(4)
    one_sided = losses.SelfSupervisedLoss(losses.NTXentLoss(0.5), symmetric=False)
    assert info_nce(X, Y, "cosine", 0.5).item() == pytest.approx(one_sided(X, Y).item())
    plain = distances.DotProductSimilarity(normalize_embeddings=False)
    theirs = losses.NPairsLoss(distance=plain)(torch.cat([X, Y]), labels.repeat(2))
    assert n_pair_loss(X, Y).item() == pytest.approx(theirs.item())


@pytest.mark.parametrize("n", [2, 5])
def test_equal_rows_give_the_loss_of_guessing(n: int) -> None:
    rows = torch.ones(n, 3, dtype=torch.float64)
    assert info_nce(rows, rows, "cosine", 0.05).item() == pytest.approx(math.log(n))
    assert n_pair_loss(rows, rows).item() == pytest.approx(math.log(n))


def test_far_logits_do_not_overflow() -> None:
    x = 100 * torch.eye(3)
    assert n_pair_loss(x, -x).item() == pytest.approx(10_000, abs=2)
    assert n_pair_loss(x, x).item() == 0


def test_the_bilinear_matrix_starts_as_the_identity_and_is_learnt() -> None:
    objective = InfoNCE(similarity="bilinear", embedding_size=3)
    assert objective(X, Y).item() == pytest.approx(info_nce(X, Y).item())
    objective(X, Y).backward()
    assert objective.weight.grad.abs().sum() > 0
    assert list(objective.state_dict()) == ["weight"]
    assert not list(InfoNCE().parameters())


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
