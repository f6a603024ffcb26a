"""Tests of noise contrastive estimation against golden numbers and loops."""

import math

import pytest
import torch
from hypothesis.strategies import integers, sampled_from

from declutr.objectives import NoiseContrastive, nce_loss
from tests.objectives import laws
from tests.objectives.oracles import Golden, cosine, dot, drawn, mean, normal, softplus

GOLDEN = Golden("pairs", "nce_eq3")
POSITIVE, NEGATIVE = GOLDEN.inputs("pos_logits", "neg_logits")


def test_golden_numbers() -> None:
    total = nce_loss(POSITIVE, NEGATIVE, reduction="sum")
    found = {
        "loss": nce_loss(POSITIVE, NEGATIVE),
        "loss_gamma1": nce_loss(POSITIVE, NEGATIVE, gamma=1),
        "eq2_sum_objective": -total,
    }
    GOLDEN.check(found)
    GOLDEN.check({"loss": nce_loss(POSITIVE, NEGATIVE, 2.0)})
    assert found["loss"] > 0  # not what is printed, which is to be maximised


@drawn(
    40,
    n=integers(2, 6),
    similarity=sampled_from(["cosine", "dot"]),
    gamma=sampled_from([None, 0.5]),
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
        learnt = NoiseContrastive(similarity, 2.5, -0.5, True, True, gamma, reduction)
        assert learnt(x, y).item() == objective(x, y).item()


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
def test_logits_of_zero_and_far_logits(gamma: float) -> None:
    nothing_known = nce_loss(torch.zeros(2), torch.zeros(5), gamma)
    assert nothing_known.item() == pytest.approx((1 + gamma) * math.log(2))
    far = torch.tensor([200.0, 300.0], requires_grad=True)
    laws.assert_zero_with_a_graph(nce_loss(far, -far, gamma), far)


def test_missing_positives_or_negatives_give_zero_terms() -> None:
    none = torch.zeros(0)
    assert nce_loss(none, torch.ones(3)).item() == nce_loss(none, none).item() == 0
    assert nce_loss(torch.ones(2), none).item() == pytest.approx(softplus(-1))


def test_gradients_of_the_function() -> None:
    laws.assert_gradients(nce_loss, POSITIVE, NEGATIVE)
    laws.assert_gradients(lambda p, n: nce_loss(p, n, 0.5, "sum"), POSITIVE, NEGATIVE)


def test_sigmoid_loss_of_siglip() -> None:
    """Compare with -1/N sum_ij log sigmoid(z_ij (t x_i y_j + b)), as printed in the paper."""
    x, y = normal(4, 3), normal(4, 3, seed=1)
    signs = 2 * torch.eye(4) - 1
    unit_x, unit_y = torch.nn.functional.normalize(x), torch.nn.functional.normalize(y)
    expected = -torch.nn.functional.logsigmoid(signs * (10 * unit_x @ unit_y.T - 10)).sum() / 4
    computed = NoiseContrastive(scale=10, bias=-10, learn_scale=True, learn_bias=True)(x, y)
    assert computed.item() == pytest.approx(expected.item(), rel=1e-6)


def test_what_is_not_learnt_is_no_parameter() -> None:
    """Its name and value stay: archives of release 1.5.0 have them."""
    names = {}
    for learnt in (False, True):
        loss = NoiseContrastive(scale=2, learn_scale=learnt, learn_bias=learnt)
        assert [name for name, _ in loss.named_parameters()] == ["log_scale", "bias"] * learnt
        names[learnt] = {name: value.item() for name, value in loss.state_dict().items()}
    assert names[False] == names[True] == {"log_scale": pytest.approx(math.log(2)), "bias": 0}


def test_unknown_reductions_raise() -> None:
    with pytest.raises(ValueError, match=r"Unknown reduction 'none': expected one of mean, sum"):
        nce_loss(POSITIVE, NEGATIVE, reduction="none")
