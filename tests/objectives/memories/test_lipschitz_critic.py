"""Tests of the critic: golden numbers, its Lipschitz constant, and its power iterations."""

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor, nn

from declutr.objectives import Critic
from tests.objectives import laws
from tests.objectives.oracles import Golden, doubles, normal

GOLDEN = Golden("reclaim", "reclaim")
NAMES = ("W_u", "W_v", "W1", "W2", "W3")


def layers(critic: Critic) -> list[nn.Linear]:
    return [critic.u_map, critic.v_map, *critic.joint]


def golden_critic() -> Critic:
    """Return a critic with golden weights, biases of 0, and converged power iterations."""
    critic = Critic(3, 2, width=2).double()
    with torch.no_grad():
        for layer, name in zip(layers(critic), NAMES, strict=True):
            layer.bias.zero_()
            layer.parametrizations.weight.original.copy_(doubles(GOLDEN.given[name]))
    for _ in range(200):
        critic(normal(1, 3), normal(1, 2))
    return critic.eval()


def test_golden_numbers() -> None:
    critic = golden_critic()
    inputs, values = GOLDEN.given, GOLDEN.values
    for layer, name, sigma in zip(layers(critic), NAMES, values["sigma"], strict=True):
        assert torch.allclose(layer.weight, doubles(inputs[name]) / sigma, atol=1e-9)
    u, v = doubles([inputs["u"]]), doubles([inputs["v"]])
    near_u = doubles(inputs["bank_u"])[values["topk_u"]].unsqueeze(0)
    near_v = doubles(inputs["bank_v"])[values["topk_v"]].unsqueeze(0)
    positive, v_logits, u_logits = critic.against(u, v, near_v, near_u)
    assert positive.tolist() == pytest.approx([values["logit_pos"]], abs=1e-9)
    assert v_logits[0].tolist() == pytest.approx(values["logits_neg_v"], abs=1e-9)
    assert u_logits[0].tolist() == pytest.approx(values["logits_neg_u"], abs=1e-9)
    assert torch.allclose(critic.sigmas(), torch.ones(5).double(), atol=1e-9)


def test_equals_the_formula() -> None:
    critic = Critic(3, 5, width=4, lipschitz=False).double()
    u, v = normal(6, 2, 3), normal(6, 2, 5, seed=1)

    def layer(i: int, x: Tensor) -> Tensor:
        return x @ layers(critic)[i].weight.T + layers(critic)[i].bias

    x = torch.cat([layer(0, u).clamp_min(0), layer(1, v).clamp_min(0)], dim=-1)
    expected = layer(4, layer(3, layer(2, x).clamp_min(0)).clamp_min(0))[..., 0]
    assert expected.shape == (6, 2)
    assert torch.allclose(critic(u, v), expected)


@pytest.mark.parametrize(("of_u", "of_v"), [(3, 3), (2, 4), (0, 2), (0, 0)])
def test_against_equals_forward_of_all_pairs(of_u: int, of_v: int) -> None:
    critic = Critic(3, 5, width=4).double().eval()
    u, v = normal(6, 3), normal(6, 5, seed=1)
    more_u, more_v = normal(6, of_u, 3, seed=2), normal(6, of_v, 5, seed=3)
    positive, v_logits, u_logits = critic.against(u, v, more_v, more_u)
    assert torch.allclose(positive, critic(u, v))
    assert torch.allclose(v_logits, critic(u.unsqueeze(1).expand(-1, of_v, -1), more_v))
    assert torch.allclose(u_logits, critic(more_u, v.unsqueeze(1).expand(-1, of_u, -1)))


def test_gradients() -> None:
    critic = Critic(3, 3, width=4).double().eval()
    laws.assert_gradients(lambda u, v: critic(u, v).sum(), normal(4, 3), normal(4, 3, seed=1))


def test_one_power_iteration_a_step_and_none_in_validation() -> None:
    critic = Critic(6, 6, width=4)
    counted = []
    for layer in layers(critic):
        part = layer.parametrizations.weight[0]
        iterate = part._power_method

        def count(weight: Tensor, iterations: int, iterate=iterate) -> None:  # type: ignore[no-untyped-def]
            counted.append(iterations)
            iterate(weight, iterations)

        part._power_method = count
    rows = normal(2, 6).float()
    few = rows.unsqueeze(1).expand(-1, 3, -1)
    critic.against(rows, rows, few, few)
    assert counted == [1] * 5
    critic.sigmas()
    assert counted == [1] * 5 and critic.training
    critic.eval().against(rows, rows, few, few)
    assert counted == [1] * 5


@pytest.mark.parametrize("lr", [1e-3, 2e-5])
def test_stays_lipschitz_in_training(lr: float) -> None:
    """Check that estimates lag little behind the optimizer, and that slopes stay bounded."""
    torch.manual_seed(0)
    critic = Critic(24, 16, width=16)
    optimizer = torch.optim.Adam(critic.parameters(), lr=lr)
    for step in range(100):
        u, v = normal(16, 24, seed=step).float(), normal(16, 16, seed=1000 + step).float()
        optimizer.zero_grad()
        nn.functional.softplus(-critic(u, v) + 2 * critic(u, v.roll(1, 0))).mean().backward()
        optimizer.step()
    sigmas = critic.sigmas()
    assert sigmas.max().item() <= 1.2
    critic.eval()
    one, other = normal(200, 40, seed=1).float(), normal(200, 40, seed=2).float()
    with torch.no_grad():
        rise = critic(one[:, :24], one[:, 24:]) - critic(other[:, :24], other[:, 24:])
    slope = (rise.abs() / (one - other).norm(dim=1)).max().item()
    assert 0 < slope <= sigmas[:2].max().item() * sigmas[2:].prod().item() + 1e-6


def test_without_the_constraint_weights_are_free() -> None:
    critic = Critic(3, 3, width=4, lipschitz=False)
    with torch.no_grad():
        critic.u_map.weight.mul_(1000)
    assert critic.sigmas()[0].item() > 10
    expected = torch.linalg.svdvals(critic.u_map.weight)[0].item()
    assert critic.sigmas()[0].item() == pytest.approx(expected)


def test_the_last_bias_can_be_learnt() -> None:
    """Check that the last bias is trained: constrained weights alone cannot reach -log K."""
    critic = Critic(3, 3, width=4)
    trainable = {name for name, p in critic.named_parameters() if p.requires_grad}
    assert "joint.2.bias" in trainable and len(trainable) == 10


@pytest.mark.parametrize(
    ("sizes", "message"),
    [((0, 3), "u_width must be at least 1, got 0"), ((3, 3, 0), "width must be at least 1, got 0")],
)
def test_invalid_widths_raise(sizes: tuple, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Critic(*sizes)
