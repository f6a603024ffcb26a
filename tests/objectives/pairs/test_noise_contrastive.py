"""Tests of noise contrastive estimation against golden numbers and loops."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from declutr.objectives import NoiseContrastive, nce_loss
from tests.objectives.oracles import GOLDEN, cosine, dot, golden_inputs, mean, normal

POSITIVE, NEGATIVE = golden_inputs("nce_eq3", "pos_logits", "neg_logits")


def softplus(x: float) -> float:
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def test_golden_numbers() -> None:
    values = GOLDEN["nce_eq3"]["values"]
    assert nce_loss(POSITIVE, NEGATIVE).item() == pytest.approx(values["loss"], abs=1e-9)
    assert nce_loss(POSITIVE, NEGATIVE, 2.0).item() == pytest.approx(values["loss"], abs=1e-9)
    other = nce_loss(POSITIVE, NEGATIVE, gamma=1).item()
    assert other == pytest.approx(values["loss_gamma1"], abs=1e-9)
    total = nce_loss(POSITIVE, NEGATIVE, reduction="sum").item()
    assert total == pytest.approx(-values["eq2_sum_objective"], abs=1e-9)
    assert nce_loss(POSITIVE, NEGATIVE) > 0  # not what is printed, which is to be maximised


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(2, 6),
    seed=st.integers(0, 10**6),
    similarity=st.sampled_from(["cosine", "dot"]),
    gamma=st.sampled_from([None, 0.5]),
)
def test_equals_loops(n: int, seed: int, similarity: str, gamma: float | None) -> None:
    x, y = normal(n, 3, seed=seed), normal(n, 3, seed=seed + 1)
    score = cosine if similarity == "cosine" else dot
    logits = [[2.5 * score(a, b) - 0.5 for b in y] for a in x]
    positive = [softplus(-logits[i][i]) for i in range(n)]
    negative = [softplus(logits[i][j]) for i in range(n) for j in range(n) if i != j]
    weight = n - 1 if gamma is None else gamma
    expected = mean(positive) + weight * mean(negative)
    for reduction, scale in (("mean", 1), ("sum", n)):
        objective = NoiseContrastive(similarity, 2.5, -0.5, gamma=gamma, reduction=reduction)
        assert objective(x, y).item() == pytest.approx(scale * expected, rel=1e-6)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
def test_logits_of_zero_and_far_logits(gamma: float) -> None:
    nothing_known = nce_loss(torch.zeros(2), torch.zeros(5), gamma)
    assert nothing_known.item() == pytest.approx((1 + gamma) * math.log(2))
    far = torch.tensor([200.0, 300.0], requires_grad=True)
    loss = nce_loss(far, -far, gamma)
    loss.backward()
    assert loss.item() == 0 and not far.grad.any()


def test_signs_of_the_gradient() -> None:
    positive, negative = POSITIVE.clone().requires_grad_(), NEGATIVE.clone().requires_grad_()
    nce_loss(positive, negative).backward()
    assert (positive.grad < 0).all() and (negative.grad > 0).all()


def test_missing_positives_or_negatives_give_zero_terms() -> None:
    none = torch.zeros(0)
    assert nce_loss(none, torch.ones(3)).item() == 0
    assert nce_loss(none, none).item() == 0
    assert nce_loss(torch.ones(2), none).item() == pytest.approx(softplus(-1))


def test_gradcheck_of_the_function() -> None:
    inputs = POSITIVE.clone().requires_grad_(), NEGATIVE.clone().requires_grad_()
    assert torch.autograd.gradcheck(nce_loss, inputs)
    assert torch.autograd.gradcheck(lambda p, n: nce_loss(p, n, 0.5, "sum"), inputs)


def test_scale_and_bias_are_learnt_if_set() -> None:
    x, y = normal(5, 3).float(), normal(5, 3, seed=1).float()
    learnt = NoiseContrastive(learn_scale=True, learn_bias=True)
    learnt(x, y).backward()
    assert learnt.log_scale.grad.abs() > 0 and learnt.bias.grad.abs() > 0
    fixed = NoiseContrastive()
    assert not any(parameter.requires_grad for parameter in fixed.parameters())
    assert fixed(x, y).item() == learnt(x, y).item()
    assert set(learnt.state_dict()) == {"log_scale", "bias"}


def test_sigmoid_loss_of_siglip() -> None:
    """Compare with -1/N sum_ij log sigmoid(z_ij (t x_i y_j + b)), as printed in the paper."""
    x, y = normal(4, 3), normal(4, 3, seed=1)
    signs = 2 * torch.eye(4) - 1
    unit_x, unit_y = torch.nn.functional.normalize(x), torch.nn.functional.normalize(y)
    expected = -torch.nn.functional.logsigmoid(signs * (10 * unit_x @ unit_y.T - 10)).sum() / 4
    computed = NoiseContrastive(scale=10, bias=-10, learn_scale=True, learn_bias=True)(x, y)
    assert computed.item() == pytest.approx(expected.item(), rel=1e-6)


def test_unknown_reductions_raise() -> None:
    with pytest.raises(ValueError, match=r"Unknown reduction 'none': expected one of mean, sum"):
        nce_loss(POSITIVE, NEGATIVE, reduction="none")
