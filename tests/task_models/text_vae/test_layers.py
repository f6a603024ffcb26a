"""Tests of the decoder, the annealed weight of the KL term, and codes.

The oracles of codes, their KL term and their densities are distributions of torch.
"""

from typing import Any

import pytest
import torch
from allennlp.common import Params
from allennlp.common.checks import ConfigurationError
from torch.distributions import Independent, Normal, kl_divergence

from declutr.recipes import recipe_path
from declutr.task_models.text_vae.layers import (
    CELLS,
    CodeDecoder,
    KlWeight,
    LatentCode,
    kl_to_prior,
    log_densities,
)


@pytest.mark.parametrize("cell", list(CELLS))
def test_predicts_from_the_past_and_the_code(cell: str) -> None:
    torch.manual_seed(0)
    decoder = CodeDecoder(cell, 5, 3, 8, 11)
    inputs, code = torch.randn(2, 6, 5), torch.randn(2, 3)
    logits = decoder(inputs, code)
    assert logits.shape == (2, 6, 11)
    changed = inputs.clone()
    changed[:, 4] += 1
    after = decoder(changed, code)
    assert torch.equal(after[:, :4], logits[:, :4]) and not torch.equal(after[:, 4:], logits[:, 4:])
    other = decoder(inputs, code + torch.tensor([[0.0], [1.0]]))
    assert torch.equal(other[0], logits[0])
    assert (other[1] != logits[1]).any(dim=-1).all(), "the code reaches every step"


def test_an_unknown_cell_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Unknown cell 'rnn': expected one of lstm, gru"):
        CodeDecoder("rnn", 5, 3, 8, 11)


def test_the_weight_rises_linearly_to_one() -> None:
    weight = KlWeight(4)
    assert [float(weight()) for _ in range(7)] == [0, 0.25, 0.5, 0.75, 1, 1, 1]
    assert [float(KlWeight(4, 0.2)()), float(KlWeight(0)()), float(KlWeight(3, 1.0)())] == [
        pytest.approx(0.2),
        1,
        1,
    ]


def test_validation_does_not_count() -> None:
    weight = KlWeight(4)
    weight()
    assert float(weight.eval()()) == float(weight()) == 0.25
    assert float(weight.train()()) == 0.25
    assert float(weight()) == 0.5


def test_a_resumed_weight_continues() -> None:
    weight, resumed = KlWeight(4), KlWeight(4)
    for _ in range(3):
        weight()
    resumed.load_state_dict(weight.state_dict())
    assert [float(resumed()), float(resumed())] == [0.75, 1]


@pytest.mark.parametrize("cycles, share", [(4, 0.5), (2, 1.0), (1, 0.25)])
def test_cycles_are_those_of_fu_et_al(cycles: int, share: float) -> None:
    """Each of M cycles of T / M batches rises for a share R of it, and then stays at 1."""
    batches = 80
    length = batches // cycles
    expected = [min(1.0, (batch % length) / (share * length)) for batch in range(batches)]
    weight = KlWeight(round(share * length), cycle=length)
    assert [float(weight()) for _ in range(batches)] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["text_vae", "text_vae_beta", "text_vae_cyclical"])
def test_weights_of_recipes_are_those_of_the_public_code(name: str) -> None:
    """There a weight begins at 0.1 and gains 1 / (10 epochs) before each batch, up to the last."""
    config = Params.from_file(str(recipe_path(name))).as_dict(quiet=True)["model"]
    final, cycle = config["kl_weight"], config["cycle_steps"]
    weight = KlWeight(config["annealing_steps"], config["initial_kl_weight"], final, cycle)
    batches = -(-42068 // 32)
    public, differences = 0.1, []
    for batch in range(0, 21 * batches):
        if cycle and batch % (10 * batches) == 0:
            public = 0.1
        public = min(final, public + 1 / (10 * batches))
        if batch % 97 == 0 or batch % batches < 2:
            weight.done.fill_(batch)
            differences.append(abs(float(weight()) - public))
    assert max(differences) < 1.5 / (10 * batches), "a batch's worth"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"final": -0.5}, "Expected a kl_weight of 0 or more, got -0.5"),
        ({"cycle": 3}, "In a cycle_steps of 3 .* expected annealing_steps, 4, or more"),
    ],
)
def test_a_wrong_end_or_cycle_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        KlWeight(4, **settings)


@pytest.mark.parametrize("steps, initial", [(-1, 0.0), (1, -0.1), (1, 1.1)])
def test_a_wrong_weight_is_refused(steps: int, initial: float) -> None:
    with pytest.raises(ConfigurationError, match=f"annealing_steps of 0 or more.*{steps} and"):
        KlWeight(steps, initial)


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
