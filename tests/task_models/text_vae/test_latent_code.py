"""Compare codes, their KL term and their densities with torch's distributions."""

import torch
from torch.distributions import Independent, Normal, kl_divergence

from declutr.task_models.text_vae.layers import LatentCode, kl_to_prior, log_densities


def normals(rows: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, rows, 3, generator=generator, dtype=torch.float64)
    return drawn[0], drawn[1]


def test_kl_equals_torchs() -> None:
    mean, log_variance = normals(5)
    expected = kl_divergence(Normal(mean, (log_variance / 2).exp()), Normal(0.0, 1.0))
    assert torch.allclose(kl_to_prior(mean, log_variance), expected)
    assert kl_to_prior(torch.zeros(2), torch.zeros(2)).tolist() == [0, 0]
    assert kl_to_prior(torch.tensor([2.0]), torch.zeros(1)).tolist() == [2]


def test_densities_equal_torchs() -> None:
    mean, log_variance = normals(5)
    samples, _ = normals(4, 1)
    found = log_densities(samples, mean, log_variance)
    for j in range(5):
        normal = Independent(Normal(mean[j], (log_variance[j] / 2).exp()), 1)
        assert torch.allclose(found[:, j], normal.log_prob(samples))


def test_samples_have_mean_and_variance() -> None:
    torch.manual_seed(0)
    latent = LatentCode(2, 3)
    code = latent(torch.ones(1, 2).expand(40_000, 2))
    assert torch.allclose(code.sample.mean(dim=0), code.mean[0], atol=0.03)
    assert torch.allclose(code.sample.var(dim=0), code.log_variance[0].exp(), rtol=0.05)
    assert (latent.get_input_dim(), latent.get_output_dim()) == (2, 3)


def test_samples_have_a_gradient() -> None:
    latent = LatentCode(2, 3)
    latent(torch.ones(4, 2)).sample.sum().backward()
    for parameter in latent.parameters():
        assert parameter.grad is not None and (parameter.grad != 0).all()


def test_noise_is_the_same_outside_training_only() -> None:
    latent, features = LatentCode(2, 3), torch.ones(4, 2)
    assert not torch.equal(latent(features).sample, latent(features).sample)
    latent.eval()
    before = torch.get_rng_state()
    assert torch.equal(latent(features).sample, latent(features).sample)
    assert torch.equal(before, torch.get_rng_state())
