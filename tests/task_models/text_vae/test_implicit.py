"""Tests of iVAE's posterior, against loops and against normal distributions, whose KL is known."""

from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from torch.distributions import MultivariateNormal, kl_divergence

from declutr.task_models.text_vae.implicit import DualNetwork, ImplicitPosterior, dual_bound
from declutr.task_models.text_vae.posterior import Code

WIDTH, LATENT = 3, 2


def posterior(**changes: Any) -> ImplicitPosterior:
    torch.manual_seed(0)
    return ImplicitPosterior(WIDTH, LATENT, **{"dual_size": 16, "particles": 64, **changes})


def features(rows: int = 5) -> torch.Tensor:
    return torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(1))


def distribution(layer: ImplicitPosterior, rows: torch.Tensor) -> MultivariateNormal:
    """Return the normal distribution of codes that are linear in normal noise."""
    linear: Any = layer._generator[0]
    of_text, of_noise = linear.weight.detach().split([WIDTH, LATENT], dim=1)
    return MultivariateNormal(rows @ of_text.T + linear.bias.detach(), of_noise @ of_noise.T)


def test_the_bound_equals_a_loop() -> None:
    torch.manual_seed(0)
    codes, of_prior = torch.randn(2, 4, 6, LATENT).double()
    given = torch.randn(4, WIDTH).double()
    for beside in (given, None):
        network = DualNetwork(LATENT + (0 if beside is None else WIDTH), 8).double()
        expected = []
        for i in range(4):
            value = 1.0
            for kind, sign in ((codes, 1), (of_prior, -1)):
                for s in range(6):
                    row = kind[i, s] if beside is None else torch.cat([kind[i, s], beside[i]])
                    nu = network._layers(row).detach()
                    value += sign * float(nu if sign > 0 else nu.exp()) / 6
            expected.append(value)
        assert dual_bound(network, codes, of_prior, beside).tolist() == pytest.approx(expected)


def test_a_large_ratio_goes_on_as_a_straight_line() -> None:
    def network(codes: torch.Tensor, _: Any) -> torch.Tensor:
        return codes.squeeze(-1)

    high = torch.tensor([[[25.0]]], dtype=torch.float64, requires_grad=True)
    bound = dual_bound(network, torch.zeros(1, 1, 1), high)  # type: ignore[arg-type]
    assert -bound.item() + 1 == pytest.approx(6 * torch.tensor(20.0).double().exp().item())
    bound.backward()
    assert high.grad is not None and high.grad.item() == pytest.approx(-(2.718281828**20), rel=1e-6)


def test_no_network_is_above_the_divergence_and_the_log_ratio_reaches_it() -> None:
    """Two hundred thousand samples of known normal distributions."""
    torch.manual_seed(0)
    q = MultivariateNormal(torch.tensor([0.5, -0.3]), torch.tensor([[0.6, 0.2], [0.2, 0.8]]))
    p = MultivariateNormal(torch.zeros(2), torch.eye(2))
    codes, of_prior = (each.sample((1, 200_000)) for each in (q, p))
    exact = kl_divergence(q, p).item()

    def best(codes: torch.Tensor, _: Any) -> torch.Tensor:
        return q.log_prob(codes) - p.log_prob(codes)

    found = dual_bound(best, codes, of_prior).item()  # type: ignore[arg-type]
    assert found == pytest.approx(exact, abs=0.02)
    for change in (0.3, -0.3):

        def other(codes: torch.Tensor, _: Any, change: float = change) -> torch.Tensor:
            return best(codes, None) + change * codes[..., 0]

        assert dual_bound(other, codes, of_prior).item() < exact - 0.02  # type: ignore[arg-type]


def test_trained_networks_find_the_divergence_of_linear_codes() -> None:
    """Only the networks learn; the closed form of normal distributions is the oracle."""
    layer, rows = posterior(dual_size=32, prior_draws=20, particles=2000), features(4)
    with torch.no_grad():
        layer._generator[0].weight.mul_(1.5)
    networks = [p for name, p in layer.named_parameters() if "_dual" in name]
    optimizer = torch.optim.Adam(networks, lr=3e-3)
    together = rows.repeat(25, 1)  # 25 codes of each text in a step
    for _ in range(300):
        optimizer.zero_grad()
        layer.divergence(layer(together), together).learning.backward()
        optimizer.step()
    layer.eval()
    found = layer.divergence(layer(rows), rows)
    exact = distribution(layer, rows)
    prior = MultivariateNormal(torch.zeros(LATENT), torch.eye(LATENT))
    kl = kl_divergence(exact, prior)
    assert found.kl.squeeze(1).mean().item() == pytest.approx(kl.mean().item(), rel=0.1)
    # The mutual information, by a hundred thousand samples of the mixture.
    codes = exact.sample((100_000,))  # (S, n, k)
    own = exact.log_prob(codes)
    of_all = exact.log_prob(codes.unsqueeze(2)).logsumexp(dim=-1) - torch.tensor(4.0).log()
    assert found.information is not None
    assert found.information.item() == pytest.approx((own - of_all).mean().item(), abs=0.1)


@pytest.mark.parametrize("penalty", ["posterior", "aggregate"])
def test_encoder_and_networks_learn_apart(penalty: str) -> None:
    layer, rows = posterior(penalty=penalty), features().requires_grad_()
    divergence = layer.divergence(layer(rows), rows)
    assert divergence.learning.item() == 0 and divergence.information is None
    own = dict(layer.named_parameters())
    of_networks = [name for name in own if "_dual" in name]

    def reached(loss: torch.Tensor) -> set[str]:
        given = torch.autograd.grad(
            loss, [rows, *own.values()], retain_graph=True, allow_unused=True
        )
        names = ["features", *own]
        return {name for name, each in zip(names, given, strict=True) if each is not None}

    assert reached(divergence.learning) == set(of_networks)
    of_codes = {"features"} | {name for name in own if "_generator" in name}
    assert reached(divergence.penalty.mean()) == of_codes
    same = torch.allclose(divergence.penalty, divergence.kl)
    assert same == (penalty == "posterior") and not divergence.kl.requires_grad


def test_networks_climb_their_bound() -> None:
    """A small step against the gradient makes both bounds of the same samples larger."""
    layer, rows = posterior(), features(200)

    def bounds() -> list[float]:
        torch.manual_seed(3)
        found = [layer.divergence(layer(rows), rows), None]
        layer._penalty = "aggregate"
        torch.manual_seed(3)
        found[1] = layer.divergence(layer(rows), rows)
        layer._penalty = "posterior"
        found[0].learning.backward()
        return [each.penalty.mean().item() for each in found]

    before = bounds()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "_dual" in name:
                parameter -= 0.05 * parameter.grad
    assert all(b > a for a, b in zip(before, bounds(), strict=True))


@pytest.mark.parametrize("layers", [0, 2])
def test_codes_outside_training(layers: int) -> None:
    layer, rows = posterior(layers=layers, particles=4000).eval(), features()
    state = torch.get_rng_state()
    code = layer(rows)
    assert all(torch.equal(a, b) for a, b in zip(code, layer(rows), strict=True))
    assert torch.equal(state, torch.get_rng_state())
    assert (layer.get_input_dim(), layer.get_output_dim()) == (WIDTH, LATENT)
    if layers:
        covariance = torch.diag_embed(code.log_variance.exp())
    else:
        exact = distribution(layer, rows)
        assert torch.allclose(code.mean, exact.mean, atol=1e-5), "opposite noise cancels"
        assert torch.allclose(code.log_variance.exp(), exact.variance, rtol=0.1)
        covariance = exact.covariance_matrix
    scale = layer.scale(code)
    assert torch.allclose(scale @ scale.mT, covariance, atol=1e-4)


def test_in_training_there_is_one_particle() -> None:
    layer, rows = posterior(), features()
    code: Code = layer(rows)
    assert torch.equal(code.sample, code.mean)
    assert not torch.equal(code.sample, layer(rows).sample)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"penalty": "both"}, "Unknown penalty 'both': expected one of posterior, aggregate"),
        ({"layers": -1}, "Expected layers of 0 or more.* got -1, 256, 16 and 5"),
        ({"dual_size": 0}, "got 0, 256, 0 and 5"),
        ({"particles": 3}, "expected an even number, got 3"),
    ],
)
def test_wrong_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        posterior(**changes)
